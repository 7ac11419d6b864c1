"""The bypass against PyTorch's own kernels: values, gradients, shapes and strides over geometry."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from comparing import check
from hypothesis import given, settings
from hypothesis import strategies as st
from test_problems import any_problem
from tiers import examples

from rocmprobe import bypass
from rocmprobe.model.problems import KINDS, parse_problem

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
LAYOUTS = ("contiguous", "channels-last", "weight channels-last", "sliced", "expanded")


def tensors(problem, dtype=torch.float64, layout="contiguous", integers=False):
    generator = torch.Generator().manual_seed(0)

    def values(shape):
        if integers:
            return torch.randint(-3, 4, shape, generator=generator).to(dtype)
        return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)

    shape = problem.input_shape
    input, weight = values(shape), values(problem.weight_shape)
    if layout == "channels-last" and problem.rank > 1:
        input = input.contiguous(memory_format=FORMATS[input.dim()])
    elif layout == "weight channels-last" and problem.rank > 1:
        weight = weight.contiguous(memory_format=FORMATS[weight.dim()])
    elif layout == "sliced":
        input = values((*shape[:-1], 2 * shape[-1] + 1))[..., 1::2]
    elif layout == "expanded":
        input = values((shape[0], 1, *shape[2:])).expand(shape)
    return input, weight, values((problem.out_channels,)) if problem.bias else None


def compute(problem, *operands):
    """Return the output, and the gradients of input, weight and bias."""
    leaves = [each.detach().requires_grad_() for each in operands if each is not None]
    names = ("stride", "padding", "dilation", "groups", *["output_padding"] * problem.transposed)
    output = getattr(F, problem.kind)(*leaves, **{name: getattr(problem, name) for name in names})
    gradient = (torch.arange(output.numel()).remainder(5) - 2).reshape(output.shape).to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, leaves, gradient)]


def telling_strides(tensor):
    return [stride for stride, size in zip(tensor.stride(), tensor.shape) if size > 1]


def check_against_native(problem, layout="contiguous", workspace_mb=256):
    operands = tensors(problem, layout=layout)
    expected = compute(problem, *operands)
    bypass.reset_status()
    with bypass.enabled("cpu", workspace_mb=workspace_mb):
        got = compute(problem, *operands)
    counts = bypass.status()
    assert not counts["native"]
    assert sum(counts["calls"].values()) == 3
    for mine, theirs in zip(got, expected):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
        assert telling_strides(mine) == telling_strides(theirs)
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_any_geometry_gives_native_results(kind):
    @settings(max_examples=examples(60), derandomize=True, database=None)
    @given(
        any_problem(largest=7, kind=kind),
        st.sampled_from(LAYOUTS),
        st.sampled_from([256, 256, 1e-3, 1e-6]),
    )
    def checked(problem, layout, workspace_mb):
        check_against_native(problem, layout, workspace_mb)

    checked()


@pytest.mark.parametrize("workspace_mb", [256, 2e-3])
@pytest.mark.parametrize("kind", KINDS)
def test_integers_are_exact_in_fp32(kind, workspace_mb):
    size, kernel = ("x".join(sizes.split("x")[: KINDS[kind]]) for sizes in ("7x6x5", "3x2x3"))
    problem = parse_problem(f"{kind}-fp32-n3-c4-i{size}-k6-f{kernel}-s2-p1-g2-bias")
    operands = tensors(problem, torch.float32, integers=True)
    expected = compute(problem, *(each.double() for each in operands))
    with bypass.enabled("cpu", workspace_mb=workspace_mb):
        got = compute(problem, *operands)
    for mine, theirs in zip(got, expected):
        assert torch.equal(mine.double(), theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("kind", "rest"),
    [("conv2d", "f3x3-p1"), ("conv2d", "f3x3-s2-p1"), ("conv_transpose2d", "f3x3-s2-p1"), ("conv2d", "f1x1")],
)
def test_half_precision_rounds_only_the_result(dtype, kind, rest):
    problem = parse_problem(f"{kind}-fp16-n4-c48-i11x9-k48-{rest}-bias")
    operands = tensors(problem, dtype)
    exact = compute(problem, *(each.double() for each in operands))
    for workspace_mb in (256, 0.3):
        with bypass.enabled("cpu", workspace_mb=workspace_mb):
            got = compute(problem, *operands)
        for mine, theirs in zip(got, exact):
            assert mine.dtype == dtype
            scale = theirs.abs().max()
            error = (mine.double() - theirs).abs()
            # Half a unit in the last place of each value, and fp32's own error for sums that cancel.
            bound = theirs.abs() * torch.finfo(dtype).eps * 0.501 + scale * 1e-5
            assert (error <= bound).all()


def test_float64_accuracy_of_a_deep_sum():
    problem = parse_problem("conv2d-fp64-n2-c300-i6x6-k8-f3x3-p1-bias")
    operands = tensors(problem)
    check(lambda: compute(problem, *operands), 3, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("stride", [2**31, 2**62])
def test_a_stride_far_beyond_the_image(stride):
    problem = parse_problem("conv2d-fp64-n2-c3-i6x5-k4-f3x2-bias")
    check_against_native(replace(problem, stride=(stride, stride)))
