"""Arguments of PyTorch's two convolution operators as interceptors see them, and the format of results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

import torch

Gradients = tuple[Optional[torch.Tensor], Optional[torch.Tensor], Optional[torch.Tensor]]


@dataclass(frozen=True)
class ConvolutionCall:
    """Call of ``aten::convolution`` (schema names), or of ``aten::_convolution`` if ``flags`` is set.

    ``input`` is ``(N, C, *spatial)`` and ``weight`` ``(K, C / groups, *kernel)``, or for a transposed
    convolution ``(C, K / groups, *kernel)``. The four lists have one entry for each spatial dimension.
    PyTorch also accepts one entry for all, which is expanded before an interceptor sees the call. Any other
    wrong length stays unchanged, so that PyTorch raises its own error. ``flags`` are the four trailing
    booleans of ``aten::_convolution`` (benchmark, deterministic, cudnn_enabled, allow_tf32), the operator
    that ``torch.jit.trace`` records.
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
        """Return the call for positional ``arguments``: 9, or 13 for ``aten::_convolution``."""
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
        """Return the same 1-d problem with a height of 1, as PyTorch's own kernels take it."""
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
        """Return everything that decides how the call is computed: all except the values."""
        return (
            _form(self.input), _form(self.weight), None if self.bias is None else _form(self.bias),
            self.stride, self.padding, self.dilation, self.transposed, self.output_padding, self.groups,
            _switches(),
        )  # fmt: skip

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of the operator."""
        return (self.input, self.weight, self.bias, *self.settings(), *(self.flags or ()))

    def settings(self) -> tuple[Any, ...]:
        """Return the arguments after the tensors.

        These are stride, padding, dilation, transposed, output_padding and groups.
        """
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
    """Call of ``aten::convolution_backward`` (schema names).

    ``grad_output`` has the shape of the convolution's output. ``bias_sizes`` is ``(K,)``, or None without
    a bias. ``output_mask`` selects the gradients to compute: input, weight, bias.
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
        """Return the call for the operator's 11 positional ``arguments``."""
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
        """Return the same 1-d problem with a height of 1.

        A ``grad_output`` of another rank stays unchanged.
        """
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
        """Return everything that decides how the call is computed: all except the values."""
        return (
            _form(self.grad_output), _form(self.input), _form(self.weight),
            self.stride, self.padding, self.dilation, self.transposed, self.output_padding, self.groups,
            _switches(),
        )  # fmt: skip

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of the operator."""
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
    return tuple(values) * max(spatial, 1) if len(values) == 1 else tuple(values)


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.layout == torch.strided else None
    return tensor.shape, strides, tensor.dtype, tensor.device, tensor.layout


def _switches() -> tuple[bool, ...]:
    """Return PyTorch's switches that decide the memory format of results, or the choice of an algorithm."""
    libraries = torch._C._get_cudnn_enabled(), torch._C._get_mkldnn_enabled()
    return (*libraries, torch.are_deterministic_algorithms_enabled())


def result_format(call: ConvolutionCall | BackwardCall) -> torch.memory_format:
    """Return the memory format that output, input gradient and weight gradient share.

    PyTorch selects its kernel first, and the format depends on the kernel. No vendor library is called.
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
    """Return the format by determine_backend_memory_format of torch 1.13.

    Source: aten/src/ATen/native/Convolution.cpp.
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
    """Return c10::TensorImpl's suggest_memory_format, from the order of the strides alone."""
    order = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}.get(tensor.dim())
    sizes, strides = tensor.shape, tensor.stride()
    if order is None or strides[1] == 0:
        return torch.contiguous_format
    least = 0
    for dimension in order:
        if sizes[dimension] == 0 or strides[dimension] < least:
            return torch.contiguous_format
        # With one channel and one position the two layouts are the same. PyTorch then reports contiguous.
        if dimension == 0 and least == strides[1]:
            return torch.contiguous_format
        least = strides[dimension] * max(1, sizes[dimension])
    return torch.channels_last if len(order) == 4 else torch.channels_last_3d
