"""Each algorithm by name: right in every direction that it computes, and within its own formula."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from planning import plan

from rocmprobe import bypass
from rocmprobe.bypass.algorithms import ALGORITHMS
from rocmprobe.bypass.choice.choices import compute as compute_by
from rocmprobe.geometry import BWD_DATA, FWD

#: Input, weight, settings; sizes that divide nothing.
PROBLEMS = {
    "3x3": ((3, 5, 13, 11), (7, 5, 3, 3), {"padding": 1}),
    "strided": ((3, 5, 14, 11), (7, 5, 3, 2), {"padding": 1, "stride": (2, 3)}),
    "dilated": ((2, 5, 13, 12), (6, 5, 3, 3), {"padding": 2, "dilation": 2, "stride": (2, 1)}),
    "no padding": ((1, 4, 9, 8), (3, 4, 2, 3), {}),
    "grouped": ((3, 6, 10, 9), (9, 2, 3, 3), {"padding": 1, "groups": 3}),
    "depthwise": ((3, 6, 11, 10), (12, 1, 3, 3), {"padding": 1, "groups": 6, "stride": (1, 2)}),
    "depthwise rows": ((3, 6, 11, 10), (12, 1, 3, 2), {"padding": 1, "groups": 6, "dilation": (2, 1)}),
    "pointwise": ((3, 6, 7, 5), (4, 6, 1, 1), {}),
    "large filter": ((2, 3, 15, 14), (4, 3, 7, 6), {"padding": 3}),
    "grouped, large filter": ((2, 6, 12, 12), (6, 2, 5, 5), {"padding": 2, "groups": 3}),
    "1-d": ((2, 4, 31), (5, 4, 5), {"padding": 2, "stride": 2}),
    "3-d": ((2, 3, 6, 5, 7), (4, 3, 2, 3, 3), {"padding": 1}),
}
#: A problem and direction that each algorithm computes on a CPU. Tests of rocmprobe's own kernels are in
#: test_own_kernels.py and tests/kernels.
MADE_FOR = {
    "pointwise": ("pointwise", FWD), "im2col": ("grouped", FWD), "slow_conv2d": ("strided", FWD),
}  # fmt: skip
ON_A_CPU = tuple(MADE_FOR)


def integers(shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-3, 4, shape, generator=generator).to(dtype)


def compute(problem, dtype, bias=True):
    """Output and gradients of input and weight."""
    input, weight, options = PROBLEMS[problem]
    leaves = [integers(shape, dtype).requires_grad_() for shape in (input, weight)]
    constant = integers(weight[:1], dtype) if bias else None
    output = getattr(F, f"conv{len(input) - 2}d")(*leaves, constant, **options)
    gradient = integers(tuple(output.shape), dtype)
    return [output.detach(), *torch.autograd.grad(output, leaves, gradient)]


def test_every_algorithm_has_a_test():
    assert {*ON_A_CPU, "depthwise"} == {name for name in ALGORITHMS if not name.startswith("kernel-")}


@pytest.mark.parametrize("name", ON_A_CPU)
@pytest.mark.parametrize(("problem", "dtype"), list(product(PROBLEMS, (torch.float32, torch.float64))))
def test_integers_come_out_as_in_pytorch(name, problem, dtype):
    expected = compute(problem, torch.float64)
    for workspace_mb in (256, 0.02):
        with bypass.enabled("cpu", workspace_mb=workspace_mb, algorithm=name):
            got = compute(problem, dtype)
        for mine, theirs in zip(got, expected):
            assert torch.equal(mine.double(), theirs)


@pytest.mark.parametrize(
    ("stride", "padding", "groups", "transposed"),
    list(product((1, 2, 3), (0, 1, 4), (1, 2, 6), (False, True))),
)
def test_im2col_with_every_stride_and_padding(stride, padding, groups, transposed):
    input, weight, bias = integers((3, 6, 7, 8)), integers((6, 6 // groups, 3, 2)), integers((6,))
    leaves = [input.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()]
    function = F.conv_transpose2d if transposed else F.conv2d

    def all_results():
        output = function(*leaves, stride=stride, padding=padding, groups=groups, dilation=(2, 1))
        return [output, *torch.autograd.grad(output.square().sum(), leaves)]

    expected = all_results()
    for workspace_mb in (256, 0.01):
        with bypass.enabled("cpu", workspace_mb=workspace_mb, algorithm="im2col"):
            got = all_results()
        for mine, theirs in zip(got, expected):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("name", "transposed", "dtype", "odd"),
    [
        (name, transposed, dtype, odd)
        for name in ON_A_CPU
        for transposed in (False, True)
        for dtype, odd in ((torch.bfloat16, 257), (torch.float16, 2049))
    ],
)
def test_a_bias_is_added_before_the_result_is_rounded(name, transposed, dtype, odd):
    """Sums that lie halfway between two values of the dtype, and a bias that makes them the upper one."""
    convolve = F.conv_transpose2d if transposed else F.conv2d
    # A transposed one of stride 2 has no window with all taps in it.
    for groups, stride in ((1, 1), (6, 1), (1, 1 if transposed else 2)):
        input, bias = torch.ones(2, 6, 9, 8, dtype=dtype), torch.ones(6, dtype=dtype)
        weight = torch.ones(6, 6 // groups, 3, 3, dtype=dtype)
        weight[0 if transposed and groups == 1 else slice(None), 0, 1, 1] = odd - (9 * 6 // groups - 1)
        exact = convolve(input.double(), weight.double(), bias.double(), groups=groups, stride=stride)
        with bypass.enabled("cpu", algorithm=name):
            output = convolve(input, weight, bias, groups=groups, stride=stride)
        assert odd + 1 in exact
        assert torch.equal(output, exact.to(dtype))


@pytest.mark.parametrize("name", MADE_FOR)
def test_it_computes_what_it_is_made_for(name):
    problem, direction = MADE_FOR[name]
    bypass.reset_status()
    with bypass.enabled("cpu", algorithm=name):
        compute(problem, torch.float32)
    assert bypass.status()["calls"].get(name)
    input, weight, options = PROBLEMS[problem]
    spatial = len(input) - 2
    settings = {"stride": 1, "padding": 0, "dilation": 1, **options}
    groups = settings.pop("groups", 1)
    lists = {
        key: value if isinstance(value, tuple) else (value,) * spatial for key, value in settings.items()
    }
    assert plan(direction, input, weight, **lists, groups=groups, algorithm=name).algorithm == name


@pytest.fixture
def depthwise_operator():
    """PyTorch's operator for depthwise convolution exists on GPUs only. Compute it on the CPU."""

    def kernel(input, weight, kernel_size, bias, stride, padding, dilation, *, out):
        settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": input.shape[1]}
        return out.copy_(F.conv2d(input, weight, bias, **settings))

    library = torch.library.Library("aten", "IMPL", "CPU")
    library.impl("_conv_depthwise2d.out", kernel)
    yield
    del library


@pytest.mark.parametrize("direction", [FWD, BWD_DATA])
def test_depthwise_convolution_on_a_gpu_is_one_operator(depthwise_operator, direction):
    shapes = (3, 6, 11, 10), (6, 1, 3, 3)
    settings = {"stride": (1, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 6}
    found = plan(direction, *shapes, **settings, device_type="cuda", algorithm="depthwise")
    assert (found.algorithm, found.flipped) == ("depthwise", direction == BWD_DATA)
    image, weight = (integers(shape).requires_grad_() for shape in shapes)
    output = F.conv2d(image, weight, **settings)
    gradient = integers(tuple(output.shape))
    results = {BWD_DATA: torch.empty_like(image), FWD: torch.empty_like(output)}
    with torch.no_grad():
        image_side = image if direction == FWD else results[BWD_DATA]
        feature_side = results[FWD] if direction == FWD else gradient
        compute_by(found, image_side, weight, None, feature_side)
    expected = output if direction == FWD else torch.autograd.grad(output, image, gradient)[0]
    assert torch.equal(results[direction], expected)


@pytest.mark.parametrize("name", ["magic", "shift"])
def test_an_unknown_algorithm_is_refused(name):
    with pytest.raises(ValueError, match=f"no algorithm '{name}'; there are auto, pointwise, im2col"):
        bypass.install("cpu", algorithm=name)
