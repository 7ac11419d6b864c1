"""The layer that computes convolutions by GEMM."""

from __future__ import annotations

from typing import Callable

import torch

from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.bypass.compute import DTYPES, Problem
from rocmprobe.bypass.counts import count_native
from rocmprobe.bypass.formats import result_format
from rocmprobe.bypass.geometry import BWD_DATA, FWD, Geometry, geometry
from rocmprobe.bypass.plan import MEGABYTE, plain_direction
from rocmprobe.bypass.shim import RANK_BYPASS, Layer


class BypassLayer(Layer):
    """Computes what it can and leaves the rest to ``proceed``, counting both.

    Args:
        workspace_mb: the cap on the workspace of one direction of one call, in MiB; see ``plan``.
    """

    name = "bypass"
    rank = RANK_BYPASS
    ties_backward = True

    def __init__(self, workspace_mb: float) -> None:
        self._cap = int(workspace_mb * MEGABYTE)

    def convolution(
        self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], torch.Tensor]
    ) -> torch.Tensor:
        try:
            plain = _plain_form(call)
        except _LeftNativeError as reason:
            count_native(str(reason))
            return proceed(call)
        with _plain_arithmetic(call.input):
            if call.weight.dim() == 3:
                return self._forward(call.as_2d(), plain).squeeze(2)
            return self._forward(call, plain)

    def convolution_backward(
        self, call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        try:
            plain = _plain_form(call)
        except _LeftNativeError as reason:
            count_native(str(reason))
            return proceed(call)
        with _plain_arithmetic(call.input):
            if call.weight.dim() == 3:
                to_input, to_weight, to_bias = self._backward(call.as_2d(), plain)
                return _squeezed(to_input), _squeezed(to_weight), to_bias
            return self._backward(call, plain)

    def _forward(self, call: ConvolutionCall, plain: Geometry) -> torch.Tensor:
        shape = (plain.batch, *_output_side(plain, call.transposed))
        output = torch.empty(
            shape, dtype=call.input.dtype, device=call.input.device, memory_format=result_format(call)
        )
        direction = plain_direction(FWD, call.transposed)
        problem = Problem(plain, self._cap)
        problem.through(direction, call.input, call.weight, bias=call.bias, result=output)
        return output

    def _backward(self, call: BackwardCall, plain: Geometry) -> Gradients:
        problem = Problem(plain, self._cap)
        layout = result_format(call)
        wants_input, wants_weight, wants_bias = call.output_mask
        to_input = to_weight = to_bias = None
        if wants_input:
            to_input = _empty_as(call.input, layout)
            direction = plain_direction(BWD_DATA, call.transposed)
            problem.through(direction, call.grad_output, call.weight, bias=None, result=to_input)
        if wants_weight:
            to_weight = _empty_as(call.weight, layout)
            sides = (call.input, call.grad_output)
            image, feature = reversed(sides) if call.transposed else sides
            problem.weights(image, feature, to_weight)
        if wants_bias:
            to_bias = call.grad_output.sum((0, *range(2, call.grad_output.dim())))
        return to_input, to_weight, to_bias


class _LeftNativeError(Exception):
    """The problem is not for the bypass; the message is the reason that ``status`` shows."""


def _plain_form(call: ConvolutionCall | BackwardCall) -> Geometry:
    """The sizes of the problem, a 1-d one as a 2-d one of height 1, which is how PyTorch computes it."""
    tensors = [call.input, call.weight]
    if isinstance(call, BackwardCall):
        tensors.append(call.grad_output)
    elif call.bias is not None:
        tensors.append(call.bias)
    dtype, device = call.input.dtype, call.input.device
    if dtype not in DTYPES:
        raise _LeftNativeError(f"dtype {str(dtype).rsplit('.', 1)[-1]}")
    if any(each.dtype != dtype or each.device != device for each in tensors):
        raise _LeftNativeError("operands of several dtypes or devices")
    if any(each.layout != torch.strided for each in tensors):
        raise _LeftNativeError("layout other than strided")
    if any(each.numel() == 0 for each in tensors):
        raise _LeftNativeError("nothing to compute")
    refused = _LeftNativeError("arguments that PyTorch refuses")
    spatial = call.weight.dim() - 2
    if spatial == 1 and call.input.dim() == 3 and len(call.stride) == len(call.padding) == 1:
        call = call.as_2d()
    try:
        plain = geometry(
            call.input.shape,
            call.weight.shape,
            stride=call.stride,
            padding=call.padding,
            dilation=call.dilation,
            transposed=call.transposed,
            output_padding=call.output_padding if call.transposed else None,
            groups=call.groups,
        )
    except ValueError:
        raise refused from None
    channels, *sizes = _output_side(plain, call.transposed)
    if isinstance(call, BackwardCall):
        if call.grad_output.shape != (plain.batch, channels, *sizes):
            raise refused
    elif call.bias is not None and call.bias.shape != (channels,):
        raise refused
    return plain


def _plain_arithmetic(tensor: torch.Tensor) -> torch.autocast:
    # A backward inside of an autocast region gets here with autocast on, and it would round our operands.
    return torch.autocast(tensor.device.type, enabled=False)


def _output_side(plain: Geometry, transposed: bool) -> tuple[int, ...]:
    """Channels and spatial sizes of what PyTorch calls the output."""
    return (plain.channels, *plain.image) if transposed else (plain.filters, *plain.feature)


def _empty_as(tensor: torch.Tensor, layout: torch.memory_format) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device, memory_format=layout)


def _squeezed(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None else gradient.squeeze(2)
