"""The arguments of PyTorch's two convolution operators, as interceptors see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

import torch

Gradients = tuple[Optional[torch.Tensor], Optional[torch.Tensor], Optional[torch.Tensor]]


@dataclass(frozen=True)
class ConvolutionCall:
    """One call of ``aten::convolution`` (schema names), or of ``aten::_convolution`` when ``flags`` is set.

    ``input`` is ``(N, C, *spatial)`` and ``weight`` ``(K, C / groups, *kernel)``, or for a transposed
    convolution ``(C, K / groups, *kernel)``. The four lists have one entry for each spatial dimension
    (PyTorch also accepts one entry for all; that form is expanded before a layer sees it, whereas any
    other wrong length is left as it came, for PyTorch's own error). ``flags`` are the four trailing
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
        """The call for an operator's positional ``arguments``: 9, or 13 for ``aten::_convolution``."""
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
        """The same 1-d problem with a height of 1, as PyTorch's own kernels take it."""
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
        """What decides how a call is computed: everything but the values."""
        return (
            _form(self.input), _form(self.weight), None if self.bias is None else _form(self.bias),
            self.stride, self.padding, self.dilation, self.transposed, self.output_padding, self.groups,
            _switches(),
        )  # fmt: skip

    def arguments(self) -> tuple[Any, ...]:
        """What the operator takes."""
        return (self.input, self.weight, self.bias, *self.settings(), *(self.flags or ()))

    def settings(self) -> tuple[Any, ...]:
        """The arguments after the tensors: stride, padding, dilation, transposed, output_padding, groups."""
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
    """One call of ``aten::convolution_backward`` (schema names).

    ``grad_output`` has the shape of the convolution's output. ``bias_sizes`` is ``(K,)``, or None without
    a bias. ``output_mask`` says which gradients are wanted: input, weight, bias.
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
        """The call for the operator's 11 positional ``arguments``."""
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
        """The same 1-d problem with a height of 1; a ``grad_output`` of another rank is left as it is."""
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
        """What decides how a call is computed: everything but the values."""
        return (
            _form(self.grad_output), _form(self.input), _form(self.weight),
            self.stride, self.padding, self.dilation, self.transposed, self.output_padding, self.groups,
            _switches(),
        )  # fmt: skip

    def arguments(self) -> tuple[Any, ...]:
        """What the operator takes."""
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
    """PyTorch's switches that decide the memory format of results, or what may be chosen."""
    libraries = torch._C._get_cudnn_enabled(), torch._C._get_mkldnn_enabled()
    return (*libraries, torch.are_deterministic_algorithms_enabled())
