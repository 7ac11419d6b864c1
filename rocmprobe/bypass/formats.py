"""The memory format that PyTorch gives the results of a convolution."""

from __future__ import annotations

import os

import torch

from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall


def result_format(call: ConvolutionCall | BackwardCall) -> torch.memory_format:
    """The memory format of output, input gradient and weight gradient: one and the same for all three.

    PyTorch picks its kernel first and the format from that. The question enters no vendor library.
    """
    bias = call.bias if isinstance(call, ConvolutionCall) else None
    arguments = (call.input, call.weight, bias, call.stride, call.padding, call.dilation)
    settings = (call.transposed, call.output_padding, call.groups)
    if hasattr(torch._C, "_conv_determine_backend_memory_format"):
        kernel = torch._C._select_conv_backend(*arguments, *settings, None)
        return torch._C._conv_determine_backend_memory_format(call.input, call.weight, kernel)
    kernel = torch._C._select_conv_backend(*arguments, *settings)
    return _format_on_torch_1(call.input, call.weight, str(kernel).rsplit(".", 1)[-1])


def _format_on_torch_1(input: torch.Tensor, weight: torch.Tensor, kernel: str) -> torch.memory_format:
    """determine_backend_memory_format of torch 1.13's aten/src/ATen/native/Convolution.cpp."""
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
    """c10::TensorImpl's suggest_memory_format, by the order of the strides alone."""
    order = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}.get(tensor.dim())
    sizes, strides = tensor.shape, tensor.stride()
    if order is None or strides[1] == 0:
        return torch.contiguous_format
    least = 0
    for dimension in order:
        if sizes[dimension] == 0 or strides[dimension] < least:
            return torch.contiguous_format
        # With one channel and one position the two layouts are the same; PyTorch then says contiguous.
        if dimension == 0 and least == strides[1]:
            return torch.contiguous_format
        least = strides[dimension] * max(1, sizes[dimension])
    return torch.channels_last if len(order) == 4 else torch.channels_last_3d
