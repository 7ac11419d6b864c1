"""The workspace formula against what PyTorch's allocator hands out."""

from __future__ import annotations

import itertools

import pytest
import torch
from planning import plan
from torch.profiler import ProfilerActivity, profile

from rocmprobe import geometry
from rocmprobe.bypass import calls, interceptor

MEGABYTE = 1 << 20
PROBLEMS = {
    "3x3": ((3, 24, 40, 36), (16, 24, 3, 3), {"padding": 1}),
    "stride 2": ((3, 24, 41, 36), (32, 24, 3, 3), {"padding": 1, "stride": 2}),
    "many small images": ((12, 24, 9, 8), (16, 24, 3, 3), {"padding": 1}),
    "no padding": ((2, 16, 30, 30), (16, 16, 5, 5), {}),
    "dilated groups": ((2, 24, 30, 30), (48, 6, 3, 3), {"padding": 2, "dilation": 2, "groups": 4}),
    "depthwise": ((2, 48, 30, 30), (48, 1, 3, 3), {"padding": 1, "groups": 48}),
    "pointwise": ((3, 64, 28, 28), (32, 64, 1, 1), {}),
    "strided pointwise": ((3, 64, 28, 28), (32, 64, 1, 1), {"stride": 2}),
    "heavy weight": ((2, 128, 6, 6), (128, 128, 3, 3), {"padding": 1}),
    "1d": ((2, 24, 900), (16, 24, 9), {"padding": 4}),
    "3d": ((2, 8, 12, 12, 12), (8, 8, 3, 3, 3), {"padding": 1}),
    "transposed": ((2, 24, 20, 20), (24, 16, 3, 3), {"stride": 2, "padding": 1, "transposed": True}),
}


def peak_above_results(function):
    """Bytes that ``function`` holds at its peak, less what it still holds at its end."""
    function()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = function()
    held = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    del result
    assert peak
    return peak - held


def operands(name, dtype, channels_last):
    input, weight, options = PROBLEMS[name]
    options = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "transposed": False, **options}
    spatial = len(input) - 2
    for setting in ("stride", "padding", "dilation"):
        options[setting] = (options[setting],) * spatial
    tensors = [torch.randn(input).to(dtype), torch.randn(weight).to(dtype)]
    if channels_last:
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        tensors = [
            each.contiguous(memory_format=formats.get(each.dim(), torch.contiguous_format))
            for each in tensors
        ]
    return (*tensors, options)


DIAGONAL = ((torch.float32, False, 256), (torch.bfloat16, True, 0.25))
#: dtype, whether the channels are last, MB: the diagonal, and thoroughly the whole of the grid.
GRID = [
    pytest.param(*each, marks=() if each in DIAGONAL else pytest.mark.thorough)
    for each in itertools.product((torch.float32, torch.bfloat16), (False, True), (256, 0.25))
]


@pytest.mark.parametrize(("dtype", "channels_last", "workspace_mb"), GRID)
@pytest.mark.parametrize("name", PROBLEMS)
def test_measured_peak_is_within_the_formula_and_the_cap(name, dtype, channels_last, workspace_mb):
    input, weight, options = operands(name, dtype, channels_last)
    zeros = (0,) * (input.dim() - 2)
    settings = (options["stride"], options["padding"], options["dilation"], options["transposed"], zeros)
    computes = interceptor.BypassInterceptor(workspace_mb, "auto")
    forward = calls.ConvolutionCall(input, weight, None, *settings, options["groups"])
    output = computes.convolution(forward, None)

    def backward(to_input, to_weight):
        mask = (to_input, to_weight, False)
        call = calls.BackwardCall(output, input, weight, None, *settings, options["groups"], mask)
        return lambda: computes.convolution_backward(call, None)

    for direction, function in {
        geometry.FWD: lambda: computes.convolution(forward, None),
        geometry.BWD_DATA: backward(True, False),
        geometry.BWD_WEIGHTS: backward(False, True),
    }.items():
        found = plan(
            direction,
            input.shape,
            weight.shape,
            **options,
            dtype=str(dtype).split(".")[1],
            channels_last=not output.is_contiguous(),
            workspace_mb=workspace_mb,
        )
        # Allocators round every block up to 64 bytes, and PyTorch keeps scalars and lists of its own.
        assert peak_above_results(function) <= found.workspace_bytes + 4096
        weight_bytes = 4 * weight.numel()
        if dtype == torch.float32 and 2 * weight_bytes < workspace_mb * MEGABYTE / 2:
            assert found.workspace_bytes <= workspace_mb * MEGABYTE


def test_a_gpu_takes_as_many_samples_as_the_cap_allows():
    shape, weight = (64, 64, 56, 56), (64, 64, 3, 3)
    settings = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "algorithm": "im2col"}
    found = plan("fwd", shape, weight, **settings, device_type="cuda")
    assert found.samples > 1
    assert found.workspace_bytes <= 256 * MEGABYTE
    assert plan("fwd", shape, weight, **settings, device_type="cpu").samples < found.samples
    one = plan("fwd", (1, *shape[1:]), weight, **settings, device_type="cuda", workspace_mb=2)
    assert one.tile[0] < 56
    assert one.workspace_bytes <= 2 * MEGABYTE


def test_pointwise_needs_no_workspace():
    settings = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    for direction in ("fwd", "bwd-data", "bwd-weights"):
        found = plan(direction, (4, 256, 28, 28), (64, 256, 1, 1), **settings)
        assert (found.algorithm, found.workspace_bytes) == ("pointwise", 0)


def test_plans_of_impossible_problems_are_refused():
    settings = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    with pytest.raises(ValueError, match="channels"):
        plan("fwd", (1, 3, 4, 4), (2, 4, 3, 3), **settings)
    with pytest.raises(ValueError, match="nothing to compute"):
        plan("fwd", (1, 4, 2, 2), (2, 4, 3, 3), **settings)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_gradient_of_a_bias_keeps_the_cap(dtype):
    """PyTorch's sum of fp16 and bf16 on a CPU works on a copy in fp32."""
    input, weight = torch.zeros(4, 1, 40, 40, dtype=dtype), torch.zeros(64, 1, 1, 1, dtype=dtype)
    gradient = torch.ones(4, 64, 40, 40, dtype=dtype)
    rest = ((64,), (1, 1), (0, 0), (1, 1), False, (0, 0), 1, (False, False, True))
    call = calls.BackwardCall(gradient, input, weight, *rest)
    computes = interceptor.BypassInterceptor(0.1, "auto")
    assert torch.equal(computes.convolution_backward(call, None)[2], gradient.sum((0, 2, 3)))
    assert peak_above_results(lambda: computes.convolution_backward(call, None)) <= 0.1 * MEGABYTE + 4096
