"""Memory format of the results that PyTorch itself would return."""

from __future__ import annotations

import os
from typing import Union

import torch

from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall


def result_strides(
    call: Union[ConvolutionCall, BackwardCall], *shapes: tuple[int, ...]
) -> list[tuple[int, ...]]:
    """Return the strides of results with these shapes.

    A 1-d call must be given as a 2-d call of height 1.
    """
    layout = _result_format(call)
    return [torch.empty(shape, device="meta", memory_format=layout).stride() for shape in shapes]


def _result_format(call: Union[ConvolutionCall, BackwardCall]) -> torch.memory_format:
    bias = call.bias if isinstance(call, ConvolutionCall) else None
    arguments = (call.input, call.weight, bias, call.stride, call.padding, call.dilation)
    settings = (call.transposed, call.output_padding, call.groups)
    if hasattr(torch._C, "_conv_determine_backend_memory_format"):
        kernel = torch._C._select_conv_backend(*arguments, *settings, None)
        return torch._C._conv_determine_backend_memory_format(call.input, call.weight, kernel)
    kernel = torch._C._select_conv_backend(*arguments, *settings)
    return _format_on_torch_1(call.input, call.weight, str(kernel).rsplit(".", 1)[-1])


def _format_on_torch_1(input: torch.Tensor, weight: torch.Tensor, kernel: str) -> torch.memory_format:
    """Return the memory format of results that torch 1.13 computes with the backend ``kernel``.

    Source: determine_backend_memory_format in aten/src/ATen/native/Convolution.cpp.
    """
    suggested = {_suggested(input), _suggested(weight)}
    flat, deep = torch.channels_last, torch.channels_last_3d
    choices: tuple[torch.memory_format, ...] = ()
    if kernel.startswith("Cudnn") or (
        kernel.startswith("Miopen") and os.environ.get("PYTORCH_MIOPEN_SUGGEST_NHWC") == "1"
    ):
        choices = () if torch.float64 in (input.dtype, weight.dtype) else (flat, deep)
    elif kernel.startswith("Mkldnn") or (
        kernel in ("Slow2d", "SlowDilated2d") and input.device.type == "cpu"
    ):
        choices = (flat,)
    return next((each for each in choices if each in suggested), torch.contiguous_format)


def _suggested(tensor: torch.Tensor) -> torch.memory_format:
    """Return the memory format that suggest_memory_format of c10::TensorImpl would return."""
    order = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}.get(tensor.dim())
    sizes, strides = tensor.shape, tensor.stride()
    if order is None or strides[1] == 0:
        return torch.contiguous_format
    least = 0
    for dimension in order:
        if sizes[dimension] == 0 or strides[dimension] < least:
            return torch.contiguous_format
        # If there is only one channel and one position, the two memory formats are the same. PyTorch then
        # reports contiguous.
        if dimension == 0 and least == strides[1]:
            return torch.contiguous_format
        least = strides[dimension] * max(1, sizes[dimension])
    return torch.channels_last if len(order) == 4 else torch.channels_last_3d
