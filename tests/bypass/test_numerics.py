"""The bypass against PyTorch's own kernels: values, gradients, shapes and strides over geometry."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from comparing import check
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from rocmprobe import bypass

KINDS = {
    (1, False): F.conv1d,
    (2, False): F.conv2d,
    (3, False): F.conv3d,
    (1, True): F.conv_transpose1d,
    (2, True): F.conv_transpose2d,
    (3, True): F.conv_transpose3d,
}
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True)
class Case:
    spatial: int
    transposed: bool
    input: tuple
    weight: tuple
    options: dict
    bias: bool
    layout: str
    workspace_mb: float


@st.composite
def cases(draw, spatial, transposed):
    def sizes(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(spatial))

    small = 7 if spatial < 3 else 5
    groups = draw(st.integers(1, 3))
    inside, outside = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kernel, stride, dilation, padding = sizes(1, 3), sizes(1, 3), sizes(1, 2), sizes(0, 2)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    image = []
    for k, s, d, p in zip(kernel, stride, dilation, padding):
        reach = (k - 1) * d + 1
        low = max(1, -(-(2 * p - reach + 1) // s) + 1) if transposed else max(1, reach - 2 * p)
        image.append(draw(st.integers(low, low + small)))
    if transposed:
        options["output_padding"] = tuple(
            draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation)
        )
        weight = (inside * groups, outside, *kernel)
    else:
        weight = (outside * groups, inside, *kernel)
    return Case(
        spatial,
        transposed,
        (draw(st.integers(1, 3)), inside * groups, *image),
        weight,
        options,
        draw(st.booleans()),
        draw(st.sampled_from(["contiguous", "channels-last", "weight channels-last", "sliced", "expanded"])),
        draw(st.sampled_from([256, 256, 1e-3, 1e-6])),
    )


def tensors(case, dtype=torch.float64, integers=False):
    generator = torch.Generator().manual_seed(0)

    def values(shape):
        if integers:
            return torch.randint(-3, 4, shape, generator=generator).to(dtype)
        return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)

    input, weight = values(case.input), values(case.weight)
    if case.layout == "channels-last" and case.spatial > 1:
        input = input.contiguous(memory_format=FORMATS[input.dim()])
    elif case.layout == "weight channels-last" and case.spatial > 1:
        weight = weight.contiguous(memory_format=FORMATS[weight.dim()])
    elif case.layout == "sliced":
        input = values((*case.input[:-1], 2 * case.input[-1] + 1))[..., 1::2]
    elif case.layout == "expanded":
        input = values((case.input[0], 1, *case.input[2:])).expand(case.input)
    outputs = case.weight[1] * case.options["groups"] if case.transposed else case.weight[0]
    return input, weight, values((outputs,)) if case.bias else None


def compute(case, input, weight, bias, gradient=None):
    leaves = [each.detach().requires_grad_() for each in (input, weight, bias) if each is not None]
    bias = leaves[2] if len(leaves) == 3 else None
    output = KINDS[case.spatial, case.transposed](leaves[0], leaves[1], bias, **case.options)
    if gradient is None:
        gradient = (torch.arange(output.numel()).remainder(5) - 2).reshape(output.shape).to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, leaves, gradient)]


def telling_strides(tensor):
    return [stride for stride, size in zip(tensor.stride(), tensor.shape) if size > 1]


def check_against_native(case):
    operands = tensors(case)
    expected = compute(case, *operands)
    bypass.reset_status()
    with bypass.enabled("cpu", workspace_mb=case.workspace_mb):
        got = compute(case, *operands)
    counts = bypass.status()
    assert not counts["native"]
    assert sum(counts["calls"].values()) == 3
    for mine, theirs in zip(got, expected):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
        assert telling_strides(mine) == telling_strides(theirs)
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("spatial", "transposed"), KINDS)
def test_any_geometry_gives_native_results(spatial, transposed):
    @settings(max_examples=examples(60), derandomize=True, database=None)
    @given(cases(spatial, transposed))
    def checked(case):
        check_against_native(case)

    checked()


@pytest.mark.parametrize("workspace_mb", [256, 2e-3])
@pytest.mark.parametrize(("spatial", "transposed"), KINDS)
def test_integers_are_exact_in_fp32(spatial, transposed, workspace_mb):
    shape = (3, 4, *(7, 6, 5)[:spatial])
    weight = (4, 3, *(3, 2, 3)[:spatial]) if transposed else (6, 2, *(3, 2, 3)[:spatial])
    options = {"stride": 2, "padding": 1, "groups": 2}
    case = Case(spatial, transposed, shape, weight, options, True, "contiguous", workspace_mb)
    operands = tensors(case, torch.float32, integers=True)
    expected = compute(case, *(each.double() for each in operands))
    with bypass.enabled("cpu", workspace_mb=workspace_mb):
        got = compute(case, *operands)
    for mine, theirs in zip(got, expected):
        assert torch.equal(mine.double(), theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("transposed", "stride", "kernel"), [(False, 1, 3), (False, 2, 3), (True, 2, 3), (False, 1, 1)]
)
def test_half_precision_rounds_only_the_result(dtype, transposed, stride, kernel):
    options = {"stride": stride, "padding": kernel // 2, "groups": 1}
    case = Case(2, transposed, (4, 48, 11, 9), (48, 48, kernel, kernel), options, True, "contiguous", 256)
    operands = tensors(case, dtype)
    exact = compute(case, *(each.double() for each in operands))
    for workspace_mb in (256, 0.3):
        with bypass.enabled("cpu", workspace_mb=workspace_mb):
            got = compute(case, *operands)
        for mine, theirs in zip(got, exact):
            assert mine.dtype == dtype
            scale = theirs.abs().max()
            error = (mine.double() - theirs).abs()
            # Half a unit in the last place of each value, and fp32's own error for sums that cancel.
            bound = theirs.abs() * torch.finfo(dtype).eps * 0.501 + scale * 1e-5
            assert (error <= bound).all()


def test_float64_accuracy_of_a_deep_sum():
    case = Case(
        2, False, (2, 300, 6, 6), (8, 300, 3, 3), {"padding": 1, "groups": 1}, True, "contiguous", 256
    )
    operands = tensors(case)
    check(lambda: compute(case, *operands), 3, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("stride", [2**31, 2**62])
def test_a_stride_far_beyond_the_image(stride):
    case = Case(2, False, (2, 3, 6, 5), (4, 3, 3, 2), {"stride": stride}, True, "contiguous", 256)
    check_against_native(case)
