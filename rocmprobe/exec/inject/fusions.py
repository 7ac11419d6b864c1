"""Fused operators that PyTorch does not dispatch as convolutions, so no interceptor sees them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Optional, cast

import torch
from torch.library import Library

#: References to the libraries with registered kernels. Freeing a library would unregister its kernels.
_libraries: list[Any] = []


def switch_off(devices: Iterable[str]) -> None:
    """Make PyTorch compute fused convolutions as ordinary convolutions.

    If ``devices`` contains "cpu", this includes convolutions of tensors in oneDNN's own format.
    """
    # Disable only the last pass of optimize_for_inference, because this pass fuses convolutions. The earlier
    # passes still freeze and fold the module.
    torch._C._jit_pass_optimize_for_inference = lambda module, other_methods=(): None
    if "cpu" in devices:
        # torch has no full annotations for this class.
        library = cast(Any, Library)("aten", "IMPL", "MkldnnCPU")
        library.impl("mkldnn_convolution", _mkldnn_convolution)
        library.impl("convolution", _convolution)
        _libraries.append(library)


def _mkldnn_convolution(
    input: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor], padding: Sequence[int],
    stride: Sequence[int], dilation: Sequence[int], groups: int,
) -> torch.Tensor:  # fmt: skip
    """Compute ``aten::mkldnn_convolution``, which the modules of ``torch.utils.mkldnn`` call."""
    return _convolution(input, weight, bias, stride, padding, dilation, False, [0], groups)


def _convolution(
    input: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor], *settings: Any
) -> torch.Tensor:
    """Compute ``aten::convolution`` for tensors in oneDNN's format."""
    bias = None if bias is None else _dense(bias)
    return torch.convolution(_dense(input), _dense(weight), bias, *settings).to_mkldnn()


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_dense() if tensor.is_mkldnn else tensor
