"""Fused operators that are no convolution to PyTorch, and so pass every interceptor by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Optional, cast

import torch
from torch.library import Library

#: Kernels are there as long as their library is.
_libraries: list[Any] = []


def switch_off(devices: Iterable[str]) -> None:
    """Have these convolutions be computed as any other: those of ``torch.jit.optimize_for_inference`` (on a
    CPU oneDNN's, on a GPU with the bias, an addition and ReLU in one), and those of tensors in oneDNN's own
    format (``to_mkldnn``, ``torch.utils.mkldnn``)."""
    # What comes before this pass is left of optimize_for_inference: the module is frozen, and folded.
    torch._C._jit_pass_optimize_for_inference = lambda module, other_methods=(): None
    if "cpu" in devices:
        # torch does not annotate this class in full.
        library = cast(Any, Library)("aten", "IMPL", "MkldnnCPU")
        library.impl("mkldnn_convolution", _of_the_librarys_own)
        library.impl("convolution", _convolution)
        _libraries.append(library)


def _of_the_librarys_own(
    input: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor], padding: Sequence[int],
    stride: Sequence[int], dilation: Sequence[int], groups: int,
) -> torch.Tensor:  # fmt: skip
    """``aten::mkldnn_convolution``, which the modules of ``torch.utils.mkldnn`` call."""
    return _convolution(input, weight, bias, stride, padding, dilation, False, [0], groups)


def _convolution(
    input: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor], *settings: Any
) -> torch.Tensor:
    """``aten::convolution``, whose result has the format of its input."""
    bias = None if bias is None else _dense(bias)
    return torch.convolution(_dense(input), _dense(weight), bias, *settings).to_mkldnn()


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_dense() if tensor.is_mkldnn else tensor
