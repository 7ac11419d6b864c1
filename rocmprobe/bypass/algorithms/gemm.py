"""Matrix products of operands that BLAS can use without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch


def is_ready(matrices: torch.Tensor) -> bool:
    """Return True if BLAS accepts these ``(batch, rows, columns)`` matrices without a copy."""
    rows, columns = matrices.shape[-2:]
    row_stride, column_stride = matrices.stride()[-2:]
    # A dimension of size 1 can have any stride.
    by_rows = (column_stride == 1 or columns == 1) and row_stride >= max(1, columns)
    by_columns = (row_stride == 1 or rows == 1) and column_stride >= max(1, rows)
    return by_rows or by_columns


def as_matrices(tensor: torch.Tensor, groups: int) -> torch.Tensor | None:
    """View ``(n, C, *spatial)`` as ``(n, groups, C / groups, positions)``.

    Return None if a copy is needed.
    """
    shape = (tensor.shape[0], groups, tensor.shape[1] // groups, tensor[0, 0].numel())
    try:
        matrices = tensor.view(shape)
    except RuntimeError:
        return None
    return matrices if is_ready(matrices) else None


class Buffer:
    """Reusable memory for temporary tensors of one dtype."""

    def __init__(self, like: torch.Tensor, dtype: torch.dtype) -> None:
        self._like = like
        self._dtype = dtype
        self._memory: torch.Tensor | None = None

    def take(self, shape: Sequence[int]) -> torch.Tensor:
        """Return an uninitialised contiguous tensor, valid until the next call."""
        wanted = prod(shape)
        if self._memory is None or self._memory.numel() < wanted:
            self._memory = self._like.new_empty(wanted, dtype=self._dtype)
        return self._memory[:wanted].view(tuple(shape))


def matrices_in(tensor: torch.Tensor, groups: int, buffer: Buffer, dtype: torch.dtype) -> torch.Tensor:
    """Return ``(n, C, *spatial)`` as ``(groups, C / groups, n * positions)``.

    A copy, if needed, lies in ``buffer``.
    """
    if tensor.shape[0] == 1 and tensor.dtype == dtype:
        ready = as_matrices(tensor, groups)
        if ready is not None:
            return ready[0]
    channels_first = tensor.transpose(0, 1)
    copy = buffer.take(channels_first.shape)
    copy.copy_(channels_first)
    return copy.view(groups, tensor.shape[1] // groups, -1)


def multiply(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None
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
    else:
        add_product(total, left, transposed)


def add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """Add ``left[g] @ right[g]`` to ``total[g]``."""
    if total.shape[0] == 1:
        total[0].addmm_(left[0], right[0])
    else:
        total.baddbmm_(left, right)


def ranges(total: int, step: int) -> Sequence[tuple[int, int]]:
    """Return (start, stop) of each part when ``range(total)`` is split into parts of length ``step``."""
    return [(first, min(first + step, total)) for first in range(0, total, step)]
