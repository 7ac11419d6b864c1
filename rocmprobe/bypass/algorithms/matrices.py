"""Tensors as matrices that BLAS can use without a copy, and products of such matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Optional

import torch

from rocmprobe.geometry import Geometry


def is_ready(matrices: torch.Tensor) -> bool:
    """Return True if BLAS accepts these ``(batch, rows, columns)`` matrices without a copy."""
    rows, columns = matrices.shape[-2:]
    row_stride, column_stride = matrices.stride()[-2:]
    # A dimension of size 1 can have any stride.
    by_rows = (column_stride == 1 or columns == 1) and row_stride >= max(1, columns)
    by_columns = (row_stride == 1 or rows == 1) and column_stride >= max(1, rows)
    return by_rows or by_columns


def as_matrices(tensor: torch.Tensor, groups: int) -> Optional[torch.Tensor]:
    """View ``(n, C, *spatial)`` as ``(n, groups, C / groups, positions)``.

    Return None if a copy is needed.
    """
    shape = tensor.shape
    try:
        matrices = tensor.view(shape[0], groups, shape[1] // groups, prod(shape[2:]))
    except RuntimeError:
        return None
    return matrices if is_ready(matrices) else None


def is_dense(plain: Geometry, tensor: torch.Tensor, is_weight: bool) -> bool:
    """Return True if BLAS can use an image, feature or weight as one matrix per group without a copy."""
    if not is_weight:
        return as_matrices(tensor, plain.groups) is not None
    try:
        return is_ready(tensor.view(plain.groups, plain.filters // plain.groups, plain.depth))
    except RuntimeError:
        return False


class Buffer:
    """Reusable memory for temporary tensors of one dtype."""

    def __init__(self, like: torch.Tensor, dtype: torch.dtype) -> None:
        self._like = like
        self._dtype = dtype
        self._memory: Optional[torch.Tensor] = None

    def take(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return an uninitialised contiguous tensor, valid until the next call."""
        memory = self._memory
        wanted = prod(shape)
        if memory is None or memory.numel() < wanted:
            memory = self._memory = self._like.new_empty(shape, dtype=self._dtype)
        if memory.shape == shape:
            return memory
        return memory.view(-1)[:wanted].view(shape)


def matrices_in(tensor: torch.Tensor, groups: int, buffer: Buffer, dtype: torch.dtype) -> torch.Tensor:
    """Return ``(n, C, *spatial)`` as ``(groups, C / groups, n * positions)``.

    A copy, if needed, lies in ``buffer``.
    """
    samples, channels, *sizes = tensor.shape
    if samples == 1 and tensor.dtype == dtype:
        ready = as_matrices(tensor, groups)
        if ready is not None:
            return ready[0]
    copy = buffer.take((channels, samples, *sizes))
    copy.copy_(tensor.transpose(0, 1))
    return copy.view(groups, channels // groups, -1)


def weight_matrices(weight: torch.Tensor, plain: Geometry, dtype: torch.dtype) -> torch.Tensor:
    """Return the weight as ``(groups, filters / groups, depth)`` in ``dtype``."""
    if weight.dtype != dtype:
        weight = weight.to(dtype, memory_format=torch.contiguous_format)
    return weight.reshape(plain.groups, plain.filters // plain.groups, plain.depth)


def multiply(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, bias: Optional[torch.Tensor] = None
) -> None:
    """Compute ``out[g] = left[g] @ right[g] + bias[g]``. ``bias`` is ``(g, rows, 1)`` or None."""
    if left.shape[0] == 1:
        # A batched product with a batch of one is slower than a plain product.
        if bias is None:
            torch.mm(left[0], right[0], out=out[0])
        else:
            torch.addmm(bias[0], left[0], right[0], out=out[0])
    elif bias is None:
        torch.bmm(left, right, out=out)
    else:
        torch.baddbmm(bias, left, right, out=out)


def accumulate(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor, first: bool) -> None:
    """Compute ``total[g] += left[g] @ right[g].T``. If ``first``, overwrite ``total``."""
    transposed = right.transpose(1, 2)
    if first:
        multiply(left, transposed, total)
    elif total.shape[0] == 1:
        total[0].addmm_(left[0], transposed[0])
    else:
        total.baddbmm_(left, transposed)


def ranges(total: int, step: int) -> Sequence[tuple[int, int]]:
    """Return (start, stop) of each part when ``range(total)`` is split into parts of length ``step``."""
    return [(first, min(first + step, total)) for first in range(0, total, step)]
