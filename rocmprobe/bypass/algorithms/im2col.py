"""Algorithm that multiplies the weight by the columns of the image (im2col).

Bwd-data multiplies weight and feature, then adds the columns to the image (col2im).

Source: Chellapilla, Puri and Simard, "High performance convolutional neural networks for document
processing", 2006.

Workspace (symbols: see ``algorithm``):

- columns: n * C' * taps * t * a, where C' is the number of channels in the groups that are computed at once
- padded region under a tile (not in bwd-data): n * C' * span(t) * b, where span(t) is the number of positions
  in the region
- weight: w * a
- bias: max(C, K) * a
- feature: n * K' * t * a, or nothing in fwd if the product is written directly into the result
- in bwd-data for fp16 and bf16: a copy of n samples of the image's C' channels in fp32
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

#: Number of elements of the columns that are computed at once on a CPU, so that they stay in the caches.
_CPU_COLUMNS = 1 << 20
#: Number of windows in a matrix product on a CPU: the minimum, and the maximum for several samples. A product
#: of few windows is inefficient, and a product of several samples must be copied into the result.
_CPU_WINDOWS = (256, 2048)


@dataclass(frozen=True)
class ColumnsPlan(Plan):
    """A plan with the pieces of the problem that are computed one after another.

    Attributes:
        groups: number of groups that are computed at once.
        wide: True if half precision is converted to fp32 for the products. Without, the product of a GPU sums
            up in fp32 and rounds once, which needs the whole sum in one product.
    """

    groups: int = 1
    wide: bool = True

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        return pieces(self.task.plain, self.groups, self.samples, self.tile)

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
        groups, samples, tile = _most_at_once(task)
        needed = _needed(task, size, groups)
        samples, tile = _largest_chunk(samples, tile, task.cap, needed)
        count = ceil(plain.batch / samples) * prod(ceil(w / t) for w, t in zip(plain.feature, tile))
        columns = plain.batch * plain.channels * plain.taps * prod(plain.feature) * size
        moved = (4 if task.direction == BWD_DATA else 2) * columns + weight_traffic(task, count)
        if task.direction == FWD and samples > 1:
            # The product of several samples is copied into the result.
            moved += 2 * plain.batch * plain.filters * prod(plain.feature) * size
        launches = ceil(plain.groups / groups) * count * (2 + plain.taps if task.direction == BWD_DATA else 4)
        return ColumnsPlan(
            self.name, task, samples, tile, needed(samples, tile), plain.flops, moved, launches,
            groups=groups, wide=wide,
        )  # fmt: skip

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
        filters = plain.filters // plain.groups
        matrices = weight_matrices(weight, plain, dtype)
        by_group = None if bias is None else bias.to(dtype).reshape(plain.groups, -1, 1)
        columns, products = Buffer(image, dtype), Buffer(image, dtype)
        for piece in plan.pieces:
            taps = piece.columns(image, columns)
            target = piece.of_feature(feature)
            some = piece.of_groups(matrices), taps
            start = None if by_group is None else piece.of_groups(by_group)
            whole = piece.samples == 1 and target.dtype == dtype
            in_place = as_matrices(target, piece.groups) if whole else None
            if in_place is not None:
                multiply(*some, in_place[0], start)
            else:
                result = products.take((piece.groups * filters, piece.samples, *piece.counts))
                multiply(*some, result.view(piece.groups, filters, -1), start)
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
    for piece in plan.pieces:
        taps = piece.columns(image, columns)
        features = matrices_in(piece.of_feature(feature), piece.groups, staged, dtype)
        accumulate(piece.of_groups(total), features, taps, piece.first)
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
            target = piece.of_image(image)
            # Taps of neighbouring windows add to the same element, so the sum must stay in fp32 until it is
            # complete.
            total = target if target.dtype == dtype else sums.take(target.shape)
            if start is None:
                total.zero_()
            else:
                total.copy_(piece.of_channels(start).expand(total.shape))
        features = matrices_in(piece.of_feature(feature), piece.groups, staged, dtype)
        taps = columns.take((piece.groups, plain.depth, features.shape[-1]))
        multiply(piece.of_groups(transposed), features, taps)
        piece.add_columns(total, taps)
        if piece.ends and total.dtype != image.dtype:
            piece.of_image(image).copy_(total)


Needed = Callable[[int, Sequence[int]], int]


def _needed(task: Task, size: int, groups: int) -> Needed:
    """Return a function from (samples, windows) to the bytes of workspace.

    ``size`` is the number of bytes of an element in the products. ``groups`` is the number of groups that are
    computed at once.
    """
    plain, back = task.plain, task.direction == BWD_DATA
    channels, filters = (each // plain.groups * groups for each in (plain.channels, plain.filters))
    padded = plain.reaches_outside() and not back
    constant = (plain.filters * plain.depth + max(plain.filters, plain.channels)) * size
    direct = task.direction == FWD and size == task.size and not task.channels_last
    image = channels * prod(plain.image) * size if back and size != task.size else 0

    def needed(samples: int, windows: Sequence[int]) -> int:
        count = samples * prod(windows)
        columns = count * channels * plain.taps * size
        region = samples * channels * prod(plain.span(windows)) * task.size if padded else 0
        in_place = direct and samples == 1 and tuple(windows[1:]) == plain.feature[1:]
        feature = 0 if in_place else count * filters * size
        return columns + region + feature + constant + samples * image

    return needed


def _most_at_once(task: Task) -> tuple[int, int, tuple[int, ...]]:
    """Return how many groups, samples and windows are computed at once with any amount of workspace."""
    plain, tile = task.plain, task.plain.feature
    if task.on_gpu:
        return plain.groups, plain.batch, tile
    least, most = _CPU_WINDOWS
    windows = max(least, _CPU_COLUMNS // plain.depth)
    samples = min(plain.batch, max(1, min(windows, most) // prod(tile)))
    tile = (min(tile[0], max(1, windows // prod(tile[1:]))), *tile[1:])
    groups = max(1, _CPU_COLUMNS // (plain.depth * samples * prod(tile)))
    return min(plain.groups, groups), samples, tile


def _largest_chunk(
    most: int, windows: Sequence[int], cap: int, needed: Needed
) -> tuple[int, tuple[int, ...]]:
    """Return how many samples, at most ``most``, and how many ``windows`` are computed in ``cap`` bytes.

    If even a single window of one sample needs more, return one sample and one window.
    """
    tile = list(windows)
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
