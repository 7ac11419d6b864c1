"""Columns channels-last, one row for each window (im2row): copied in runs of all channels.

Wins where the results are to lie channels-last, where the image has few channels, and for the weight
gradient of deep layers. Groups only as one.

Workspace: rows n * t * taps * C * a, the image channels-last with its padding n * span(t) * C * a, weight
w * a, bias K * a, forward: the product n * K * t * a unless the result is channels-last; bwd-weights: the
gradient n * K * t * a.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

import torch

from rocmprobe.bypass.algorithms.base import (
    BWD_DATA,
    FWD,
    Algorithm,
    Needed,
    Operands,
    Plan,
    accumulation_dtype,
    fitted,
    gemm_flops,
    packed,
    weight_traffic,
)
from rocmprobe.bypass.algorithms.columns import Box, index, overlap
from rocmprobe.bypass.algorithms.gemm import Buffer
from rocmprobe.bypass.algorithms.im2col import inside, pieces
from rocmprobe.geometry import Geometry


class Im2row(Algorithm):
    name = "im2row"

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        if direction == BWD_DATA or plain.groups != 1:
            return None
        needed = _needed(plain, operands)
        if needed(1, [1] * len(plain.feature)) > cap:
            return None
        samples, tile, workspace = fitted(plain.feature, plain.batch, needed, cap)
        count = ceil(plain.batch / samples) * prod(ceil(w / t) for w, t in zip(plain.feature, tile))
        positions = plain.batch * prod(plain.feature)
        rows = positions * plain.channels * plain.taps
        result = 0 if operands.channels_last and direction == FWD else positions * plain.filters
        moved = (2 * rows + 2 * result + 2 * plain.batch * plain.channels * prod(plain.image)) * operands.wide
        moved += weight_traffic(plain, operands, direction, count + 3)
        return Plan(self.name, False, samples, tile, workspace, gemm_flops(plain), moved, count * 4)

    def forward(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        feature: torch.Tensor,
    ) -> None:
        matrix = _matrix(weight, plain).t()
        rows = _Rows(image, plain, plan)
        products = Buffer(image, matrix.dtype)
        start = None if bias is None else bias.to(matrix.dtype)
        for box, first, last in pieces(plain, plan):
            windows = rows.take(first, last, box)
            target = _last(inside(feature[first:last], box))
            direct = target.dtype == matrix.dtype and target.is_contiguous()
            result = target if direct else products.take(target.shape)
            flat = result.view(-1, plain.filters)
            if start is None:
                torch.mm(windows, matrix, out=flat)
            else:
                torch.addmm(start, windows, matrix, out=flat)
            if not direct:
                target.copy_(result)

    def backward_weights(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        gradient: torch.Tensor,
        weight_gradient: torch.Tensor,
    ) -> None:
        dtype = accumulation_dtype(image.dtype)
        rows = _Rows(image, plain, plan)
        staged = Buffer(gradient, dtype)
        total = gradient.new_empty((plain.filters, plain.depth), dtype=dtype)
        for number, (box, first, last) in enumerate(pieces(plain, plan)):
            windows = rows.take(first, last, box)
            part = inside(gradient[first:last], box).transpose(0, 1)
            gradients = staged.take(part.shape)
            gradients.copy_(part)
            if number:
                total.addmm_(gradients.view(plain.filters, -1), windows)
            else:
                torch.mm(gradients.view(plain.filters, -1), windows, out=total)
        shape = (plain.filters, *plain.kernel, plain.channels)
        weight_gradient.copy_(total.view(shape).movedim(-1, 1))


class _Rows:
    """Reads the windows of an image as rows (taps, channels)."""

    def __init__(self, image: torch.Tensor, plain: Geometry, plan: Plan) -> None:
        self._image = image
        self._plain = plain
        dtype = accumulation_dtype(image.dtype)
        self._covered = image.new_zeros((plan.samples, *plain.span(plan.tile), plain.channels), dtype=dtype)
        self._box: Box | None = None
        self._rows = Buffer(image, dtype)
        self._rows.take((plan.samples, *plan.tile, plain.taps, plain.channels))

    def take(self, first: int, last: int, box: Box) -> torch.Tensor:
        plain = self._plain
        counts = [end - begin for begin, end in box]
        starts = [begin * s - p for (begin, _), s, p in zip(box, plain.stride, plain.padding)]
        if self._box not in (None, box):
            # The border of another tile is elsewhere.
            self._covered.zero_()
        self._box = box
        everything = slice(None)
        source, target = overlap(starts, plain.span(counts), plain.image)
        covered = self._covered[: last - first]
        covered[index(everything, *target)].copy_(
            _last(self._image[first:last][index(everything, everything, *source)])
        )
        of_sample, *inner, _ = covered.stride()
        windows = covered.as_strided(
            (last - first, *counts, *plain.kernel, plain.channels),
            (
                of_sample,
                *(stride * s for stride, s in zip(inner, plain.stride)),
                *(stride * d for stride, d in zip(inner, plain.dilation)),
                1,
            ),
        )
        rows = self._rows.take(windows.shape)
        rows.copy_(windows)
        return rows.view(-1, plain.depth)


def _needed(plain: Geometry, operands: Operands) -> Needed:
    def needed(samples: int, windows: Sequence[int]) -> int:
        positions = samples * prod(windows)
        covered = samples * prod(plain.span(windows)) * plain.channels
        sides = positions * (plain.depth + plain.filters)
        return (sides + covered + 2 * plain.filters * plain.depth + plain.filters) * operands.wide

    return needed


def _matrix(weight: torch.Tensor, plain: Geometry) -> torch.Tensor:
    """``(filters, taps * channels)`` in the dtype of the GEMMs."""
    return packed(weight.movedim(1, -1)).view(plain.filters, plain.depth)


def _last(tensor: torch.Tensor) -> torch.Tensor:
    """``(n, C, *spatial)`` seen as ``(n, *spatial, C)``."""
    return tensor.movedim(1, -1)
