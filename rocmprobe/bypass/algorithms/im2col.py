"""Algorithm that multiplies the weight by the columns of the image (im2col).

Bwd-data multiplies weight and feature, then adds the columns to the image (col2im).

Source: Chellapilla, Puri and Simard, "High performance convolutional neural networks for document
processing", 2006.

Workspace (symbols: see ``algorithm``):

- columns: n * C * taps * t * a
- padded region under a tile (not in bwd-data): n * C * span(t) * b, where span(t) is the number of positions
  in the region
- weight: w * a
- bias: max(C, K) * a
- feature: n * K * t * a, or nothing in fwd if the product is written directly into the result
- in bwd-data for fp16 and bf16: a copy of n samples of the image in fp32
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from typing import Callable, Optional

import torch

from rocmprobe.bypass.algorithms.algorithm import (
    BWD_DATA,
    BWD_WEIGHTS,
    FWD,
    Algorithm,
    Plan,
    Task,
    weight_traffic,
)
from rocmprobe.bypass.algorithms.columns import Piece, pieces
from rocmprobe.bypass.algorithms.matrices import (
    Buffer,
    accumulate,
    as_matrices,
    matrices_in,
    multiply,
    weight_matrices,
)

#: Number of windows whose columns are multiplied in one product on a CPU. With fewer windows, the columns
#: stay in the caches. With more windows, the matrix product is more efficient.
_CPU_WINDOWS = 2048
#: Minimum depth of a product whose sample is split into tiles on a CPU. Shallow products gain nothing.
_DEEP = 64


@dataclass(frozen=True)
class ColumnsPlan(Plan):
    """A plan with the pieces of the problem that are computed one after another.

    Attributes:
        wide: True if half precision is converted to fp32 for the products. Without, the product of a GPU sums
            up in fp32 and rounds once, which needs the whole sum in one product.
    """

    wide: bool = True

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        return pieces(self.task.plain, self.samples, self.tile)

    @cached_property
    def dtype(self) -> torch.dtype:
        """Dtype of the products."""
        return torch.float32 if self.task.half and self.wide else getattr(torch, self.task.dtype)


class Im2col(Algorithm):
    name = "im2col"

    def applies(self, task: Task) -> bool:
        return True

    def cost(self, task: Task) -> Sequence[Plan]:
        plan = self._plan(task, wide=True)
        if task.half and task.on_gpu and task.direction != BWD_DATA:
            narrow = self._plan(task, wide=False)
            whole = narrow.samples == task.plain.batch and narrow.tile == task.plain.feature
            if task.direction == FWD or whole:
                return [narrow]
        return [plan]

    def _plan(self, task: Task, wide: bool) -> ColumnsPlan:
        plain, size = task.plain, max(task.size, 4) if wide else task.size
        needed = _needed(task, size)
        samples, tile = _largest_chunk(task, needed)
        count = ceil(plain.batch / samples) * prod(ceil(w / t) for w, t in zip(plain.feature, tile))
        columns = plain.batch * plain.channels * plain.taps * prod(plain.feature) * size
        moved = (4 if task.direction == BWD_DATA else 2) * columns + weight_traffic(task, count)
        if task.direction == FWD and samples > 1:
            # The product of several samples is copied into the result.
            moved += 2 * plain.batch * plain.filters * prod(plain.feature) * size
        launches = count * (2 + plain.taps if task.direction == BWD_DATA else 4)
        return ColumnsPlan(
            self.name, task, samples, tile, needed(samples, tile), plain.flops, moved, launches, wide=wide
        )

    def forward(
        self,
        plan: Plan,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: Optional[torch.Tensor],
        feature: torch.Tensor,
    ) -> None:
        assert isinstance(plan, ColumnsPlan)
        plain, dtype = plan.task.plain, plan.dtype
        groups, filters = plain.groups, plain.filters // plain.groups
        matrices = weight_matrices(weight, plain, dtype)
        by_group = None if bias is None else bias.to(dtype).reshape(groups, -1, 1)
        columns, products = Buffer(image, dtype), Buffer(image, dtype)
        for piece in plan.pieces:
            taps = piece.columns(image, columns)
            target = piece.of_feature(feature)
            in_place = as_matrices(target, groups) if piece.samples == 1 and target.dtype == dtype else None
            if in_place is not None:
                multiply(matrices, taps, in_place[0], by_group)
            else:
                result = products.take((plain.filters, piece.samples, *piece.counts))
                multiply(matrices, taps, result.view(groups, filters, -1), by_group)
                target.copy_(result.transpose(0, 1))

    def backward(
        self,
        plan: Plan,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: Optional[torch.Tensor],
        feature: torch.Tensor,
    ) -> None:
        assert isinstance(plan, ColumnsPlan)
        if plan.task.direction == BWD_WEIGHTS:
            _sum_weight(plan, image, weight, feature)
        else:
            _add_to_image(plan, image, weight, bias, feature)


def _sum_weight(plan: ColumnsPlan, image: torch.Tensor, weight: torch.Tensor, feature: torch.Tensor) -> None:
    plain, dtype = plan.task.plain, plan.dtype
    shape = (plain.groups, plain.filters // plain.groups, plain.depth)
    in_place = weight.dtype == dtype and weight.is_contiguous()
    total = weight.view(shape) if in_place else weight.new_empty(shape, dtype=dtype)
    columns, staged = Buffer(image, dtype), Buffer(feature, dtype)
    for number, piece in enumerate(plan.pieces):
        taps = piece.columns(image, columns)
        features = matrices_in(piece.of_feature(feature), plain.groups, staged, dtype)
        accumulate(total, features, taps, first=number == 0)
    if not in_place:
        weight.copy_(total.view(weight.shape))


def _add_to_image(
    plan: ColumnsPlan,
    image: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor],
    feature: torch.Tensor,
) -> None:
    plain, dtype = plan.task.plain, plan.dtype
    transposed = weight_matrices(weight, plain, dtype).transpose(1, 2)
    columns, staged, sums = (Buffer(feature, dtype) for _ in range(3))
    start = None if bias is None else bias.view(1, -1, *(1 for _ in plain.image))
    total = image
    for piece in plan.pieces:
        if piece.begins:
            target = piece.of_samples(image)
            # Taps of neighbouring windows add to the same element, so the sum must stay in fp32 until it is
            # complete.
            total = target if target.dtype == dtype else sums.take(target.shape)
            if start is None:
                total.zero_()
            else:
                total.copy_(start.expand(total.shape))
        features = matrices_in(piece.of_feature(feature), plain.groups, staged, dtype)
        taps = columns.take((plain.groups, plain.depth, features.shape[-1]))
        multiply(transposed, features, taps)
        piece.add_columns(total, taps)
        if piece.ends and total.dtype != image.dtype:
            piece.of_samples(image).copy_(total)


Needed = Callable[[int, Sequence[int]], int]


def _needed(task: Task, size: int) -> Needed:
    """Return a function from (samples, windows) to the bytes of workspace.

    ``size`` is the number of bytes of an element in the products.
    """
    plain, back = task.plain, task.direction == BWD_DATA
    padded = plain.reaches_outside() and not back
    constant = (plain.filters * plain.depth + max(plain.filters, plain.channels)) * size
    direct = task.direction == FWD and size == task.size and not task.channels_last
    image = plain.channels * prod(plain.image) * size if back and size != task.size else 0

    def needed(samples: int, windows: Sequence[int]) -> int:
        count = samples * prod(windows)
        columns = count * plain.channels * plain.taps * size
        region = samples * plain.channels * prod(plain.span(windows)) * task.size if padded else 0
        in_place = direct and samples == 1 and tuple(windows[1:]) == plain.feature[1:]
        feature = 0 if in_place else count * plain.filters * size
        return columns + region + feature + constant + samples * image

    return needed


def _largest_chunk(task: Task, needed: Needed) -> tuple[int, tuple[int, ...]]:
    """Return how many samples and windows are computed at once in ``task.cap`` bytes.

    If even a single window of one sample needs more, return one sample and one window.
    """
    plain, cap = task.plain, task.cap
    windows = prod(plain.feature)
    most, tile = plain.batch, list(plain.feature)
    if not task.on_gpu:
        most = min(plain.batch, max(1, _CPU_WINDOWS // windows))
        if plain.depth >= _DEEP and task.direction != BWD_DATA:
            inner = windows // tile[0]
            tile[0] = min(tile[0], max(1, _CPU_WINDOWS // inner))
    samples = _largest(most, lambda count: needed(count, tile) <= cap)
    for dimension, size in enumerate(tile):
        if needed(samples, tile) <= cap:
            break

        def fits(count: int, dimension: int = dimension) -> bool:
            return needed(samples, [*tile[:dimension], count, *tile[dimension + 1 :]]) <= cap

        tile[dimension] = _largest(size, fits)
    return samples, tuple(tile)


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest count up to ``most`` for which ``fits`` is true, or 1 if no count fits.

    If a count fits, all smaller counts must fit.
    """
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
