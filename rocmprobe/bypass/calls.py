"""Calls of PyTorch's convolution operators, as interceptors receive them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

import torch

Gradients = tuple[Optional[torch.Tensor], Optional[torch.Tensor], Optional[torch.Tensor]]


@dataclass(frozen=True)
class ConvolutionCall:
    """Call of ``aten::convolution``, or of ``aten::_convolution`` if ``flags`` is set.

    The fields have the names of the operator's schema. ``input`` is ``(N, C, *spatial)``. ``weight`` is ``(K,
    C / groups, *kernel)``, or ``(C, K / groups, *kernel)`` if transposed. Stride, padding, dilation and
    output padding have one entry for each spatial dimension. ``flags`` are benchmark, deterministic,
    cudnn_enabled and allow_tf32.
    """

    input: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int
    flags: tuple[bool, ...] | None = None

    @staticmethod
    def of(arguments: Sequence[Any]) -> ConvolutionCall:
        """Build a call from the 9 arguments of ``aten::convolution`` or the 13 of ``aten::_convolution``."""
        input, weight, bias, stride, padding, dilation, transposed, output_padding, groups = arguments[:9]
        spatial = weight.dim() - 2
        return ConvolutionCall(
            input,
            weight,
            bias,
            _expanded(stride, spatial),
            _expanded(padding, spatial),
            _expanded(dilation, spatial),
            transposed,
            _expanded(output_padding, spatial),
            groups,
            tuple(arguments[9:]) or None,
        )

    def as_2d(self) -> ConvolutionCall:
        """Return this 1-d convolution as a 2-d convolution of height 1."""
        return replace(
            self,
            input=self.input.unsqueeze(2),
            weight=self.weight.unsqueeze(2),
            stride=(1, *self.stride),
            padding=(0, *self.padding),
            dilation=(1, *self.dilation),
            output_padding=(0, *self.output_padding),
        )

    def form(self) -> tuple[Any, ...]:
        """Return a hashable key. Calls with equal keys use the same algorithm."""
        return (
            _form(self.input), _form(self.weight), None if self.bias is None else _form(self.bias),
            self.stride, self.padding, self.dilation, self.transposed, self.output_padding, self.groups,
            _switches(),
        )  # fmt: skip

    def arguments(self) -> tuple[Any, ...]:
        """Return the operator's positional arguments."""
        return (self.input, self.weight, self.bias, *self.settings(), *(self.flags or ()))

    def settings(self) -> tuple[Any, ...]:
        """Return the operator's arguments from ``stride`` to ``groups``."""
        return (
            list(self.stride),
            list(self.padding),
            list(self.dilation),
            self.transposed,
            list(self.output_padding),
            self.groups,
        )


@dataclass(frozen=True)
class BackwardCall:
    """Call of ``aten::convolution_backward``.

    The fields have the names of the operator's schema. ``grad_output`` has the shape of the convolution's
    output. ``bias_sizes`` is ``(K,)``, or None without a bias. ``output_mask`` says which gradients are
    requested: input, weight, bias.
    """

    grad_output: torch.Tensor
    input: torch.Tensor
    weight: torch.Tensor
    bias_sizes: tuple[int, ...] | None
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int
    output_mask: tuple[bool, bool, bool]

    @staticmethod
    def of(arguments: Sequence[Any]) -> BackwardCall:
        """Build a call from the operator's 11 positional arguments."""
        grad_output, input, weight, bias_sizes, stride, padding, dilation = arguments[:7]
        transposed, output_padding, groups, mask = arguments[7:]
        spatial = weight.dim() - 2
        return BackwardCall(
            grad_output,
            input,
            weight,
            None if bias_sizes is None else tuple(bias_sizes),
            _expanded(stride, spatial),
            _expanded(padding, spatial),
            _expanded(dilation, spatial),
            transposed,
            _expanded(output_padding, spatial),
            groups,
            (bool(mask[0]), bool(mask[1]), bool(mask[2])),
        )

    def as_2d(self) -> BackwardCall:
        """Return this 1-d backward as the backward of a 2-d convolution of height 1."""
        flat = self.grad_output.dim() == 3
        return replace(
            self,
            grad_output=self.grad_output.unsqueeze(2) if flat else self.grad_output,
            input=self.input.unsqueeze(2),
            weight=self.weight.unsqueeze(2),
            stride=(1, *self.stride),
            padding=(0, *self.padding),
            dilation=(1, *self.dilation),
            output_padding=(0, *self.output_padding),
        )

    def form(self) -> tuple[Any, ...]:
        """Return a hashable key. Calls with equal keys use the same algorithm."""
        return (
            _form(self.grad_output), _form(self.input), _form(self.weight),
            self.stride, self.padding, self.dilation, self.transposed, self.output_padding, self.groups,
            _switches(),
        )  # fmt: skip

    def arguments(self) -> tuple[Any, ...]:
        """Return the operator's positional arguments."""
        return (
            self.grad_output,
            self.input,
            self.weight,
            None if self.bias_sizes is None else list(self.bias_sizes),
            list(self.stride),
            list(self.padding),
            list(self.dilation),
            self.transposed,
            list(self.output_padding),
            self.groups,
            list(self.output_mask),
        )


def _expanded(values: Sequence[int], spatial: int) -> tuple[int, ...]:
    # Keep sequences of other lengths, so that PyTorch raises its own error.
    return tuple(values) * max(spatial, 1) if len(values) == 1 else tuple(values)


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.layout == torch.strided else None
    return tensor.shape, strides, tensor.dtype, tensor.device, tensor.layout


def _switches() -> tuple[bool, ...]:
    """Return PyTorch's global switches: cuDNN, oneDNN, deterministic algorithms."""
    libraries = torch._C._get_cudnn_enabled(), torch._C._get_mkldnn_enabled()
    return (*libraries, torch.are_deterministic_algorithms_enabled())


def result_format(call: ConvolutionCall | BackwardCall) -> torch.memory_format:
    """Return the memory format that PyTorch would use for the results of ``call``."""
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
