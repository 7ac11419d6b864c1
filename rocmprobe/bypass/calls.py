"""Calls of PyTorch's convolution operators, as interceptors receive them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

import torch

Gradients = tuple[Optional[torch.Tensor], Optional[torch.Tensor], Optional[torch.Tensor]]


@dataclass
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
        stride, padding, dilation, extra = _expanded(weight, stride, padding, dilation, output_padding)
        flags = tuple(arguments[9:]) or None
        return ConvolutionCall(
            input, weight, bias, stride, padding, dilation, transposed, extra, groups, flags
        )

    def as_2d(self) -> ConvolutionCall:
        """Return this 1-d convolution as a 2-d convolution of height 1, with a contiguous input."""
        # PyTorch makes the input contiguous, too. Otherwise, a permuted input would look like channels-last.
        return replace(
            self,
            input=self.input.contiguous().unsqueeze(2),
            weight=self.weight.unsqueeze(2),
            stride=(1, *self.stride),
            padding=(0, *self.padding),
            dilation=(1, *self.dilation),
            output_padding=(0, *self.output_padding),
        )

    def form(self) -> tuple[Any, ...]:
        """Return a hashable key. Calls with equal keys use the same algorithm."""
        input, weight, bias = self.input, self.weight, self.bias
        return (
            input.shape, input.stride(), input.dtype, input.device, weight.shape, weight.stride(),
            weight.dtype, weight.device, None if bias is None else (bias.shape, bias.dtype, bias.device),
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


@dataclass
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
        stride, padding, dilation, extra = _expanded(weight, stride, padding, dilation, output_padding)
        sizes = None if bias_sizes is None else tuple(bias_sizes)
        return BackwardCall(
            grad_output, input, weight, sizes, stride, padding, dilation, transposed, extra, groups,
            (mask[0], mask[1], mask[2]),
        )  # fmt: skip

    def as_2d(self) -> BackwardCall:
        """Return this 1-d backward as the backward of a 2-d convolution of height 1."""
        return replace(
            self,
            grad_output=self.grad_output.unsqueeze(2),
            input=self.input.contiguous().unsqueeze(2),
            weight=self.weight.unsqueeze(2),
            stride=(1, *self.stride),
            padding=(0, *self.padding),
            dilation=(1, *self.dilation),
            output_padding=(0, *self.output_padding),
        )

    def form(self) -> tuple[Any, ...]:
        """Return a hashable key. Calls with equal keys use the same algorithm."""
        gradient, input, weight = self.grad_output, self.input, self.weight
        return (
            gradient.shape, gradient.stride(), gradient.dtype, gradient.device, input.shape, input.stride(),
            input.dtype, input.device, weight.shape, weight.stride(), weight.dtype, weight.device,
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


def _expanded(weight: torch.Tensor, *lists: Sequence[int]) -> list[tuple[int, ...]]:
    """Return ``lists`` with one entry for each spatial dimension."""
    # Keep sequences of other lengths, so that PyTorch raises its own error.
    spatial = max(weight.dim() - 2, 1)
    return [tuple(values) * spatial if len(values) == 1 else tuple(values) for values in lists]


def _switches() -> tuple[bool, ...]:
    """Return PyTorch's global switches: cuDNN, oneDNN, deterministic algorithms."""
    libraries = torch._C._get_cudnn_enabled(), torch._C._get_mkldnn_enabled()
    return (*libraries, torch.are_deterministic_algorithms_enabled())
