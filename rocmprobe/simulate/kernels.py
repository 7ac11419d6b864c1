"""Convolutions of a simulated library: half precision as on a GPU, and wrong results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Optional, Union

import torch

from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.checks.tools.compare import index_of
from rocmprobe.model.problems import Problem
from rocmprobe.simulate.machines import Fault


def problem_of(call: Union[ConvolutionCall, BackwardCall]) -> Problem:
    """Return the problem that ``call`` computes, without the memory format."""
    rank = call.weight.dim() - 2
    batch, in_channels, *size = call.input.shape
    out_channels = call.weight.shape[1] * call.groups if call.transposed else call.weight.shape[0]
    bias = call.bias if isinstance(call, ConvolutionCall) else call.bias_sizes
    return Problem(
        f"conv_transpose{rank}d" if call.transposed else f"conv{rank}d",
        str(call.input.dtype).rpartition(".")[2], batch, in_channels, tuple(size), out_channels,
        tuple(call.weight.shape[2:]), call.stride, call.padding, call.dilation, call.output_padding,
        call.groups, bias is not None,
    )  # fmt: skip


def fp32_output(call: ConvolutionCall, proceed: Callable[[ConvolutionCall], Any]) -> Any:
    """Return the output of ``call``, computed in fp32 and converted to the dtype of ``call``.

    PyTorch's own half precision kernels for the CPU are missing or inexact in some builds.
    """
    lifted = replace(call, input=to_fp32(call.input), weight=to_fp32(call.weight), bias=to_fp32(call.bias))
    return proceed(lifted).to(call.input.dtype)


def fp32_gradients(call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]) -> Gradients:
    """Return the gradients of ``call``, computed in fp32 and converted to the dtype of ``call``."""
    lifted = replace(
        call, grad_output=to_fp32(call.grad_output), input=to_fp32(call.input), weight=to_fp32(call.weight)
    )
    narrow = [None if each is None else each.to(call.input.dtype) for each in proceed(lifted)]
    return narrow[0], narrow[1], narrow[2]


def to_fp32(tensor: Optional[Any]) -> Any:
    """Return ``tensor`` in fp32 if its dtype is half precision, else unchanged."""
    return (
        tensor.float() if tensor is not None and tensor.dtype in (torch.float16, torch.bfloat16) else tensor
    )


def wrong_gradients(fault: Fault, gradients: Gradients, directions: tuple[str, ...]) -> Gradients:
    """Return ``gradients`` with wrong values for ``directions``."""
    data, weight, bias = gradients
    if data is not None and "bwd-data" in directions:
        data = wrong_result(fault, data)
    if "bwd-weights" in directions:
        weight = None if weight is None else wrong_result(fault, weight)
        if bias is not None and fault.effect == "wrong":
            bias = wrong_result(fault, bias)
    return data, weight, bias


def wrong_result(fault: Fault, right: torch.Tensor) -> torch.Tensor:
    """Return ``right`` with a doubled first channel, or with one flipped bit if the effect is "flip"."""
    if not right.numel() or (fault.effect == "flip" and right.dtype != torch.float32):
        return right
    result = right.clone()
    if fault.effect == "wrong":
        result.select(1 if result.dim() > 1 else 0, 0).mul_(2)
        return result
    place = tuple(index_of(result.numel() // 2, result.shape))
    mask = 1 << fault.bit if fault.bit < 31 else -(1 << 31)
    result[place] = (result[place].reshape(1).view(torch.int32) ^ mask).view(torch.float32)[0]
    return result
