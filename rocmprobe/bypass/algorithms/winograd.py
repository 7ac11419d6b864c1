"""Winograd's minimal filtering for 3x3 at stride 1, fp32: F(2x2, 3x3) and F(4x4, 3x3).

Lavin and Gray, "Fast algorithms for convolutional neural networks", CVPR 2016: 2.25 and 4 times fewer
multiplications. Every transform is one product with a Kronecker square of the one-dimensional matrix. Sums
are no longer plain: the error grows with the tile, so these are never chosen where exactness is required.

Workspace for m x m tiles of e = m + 2 values a side and T tiles: tiles and their transform 2 * e*e * C * T,
products e*e * K * T, results m*m * K * T, padded image n * C * span, weights e*e * C * K, all * a.
"""

from __future__ import annotations

from functools import cache
from math import ceil

import torch

from rocmprobe.bypass.algorithms.base import FWD, Algorithm, Operands, Plan, largest
from rocmprobe.bypass.algorithms.gemm import ranges
from rocmprobe.geometry import Geometry

#: B^T, G and A^T of Lavin and Gray's paper, by the tile's side m.
_MATRICES: dict[int, tuple[list[list[float]], ...]] = {
    2: (
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]],
    ),
    4: (
        [
            [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1],
        ],
        [
            [1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6], [0, 0, 1],
        ],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    ),
}  # fmt: skip


class Winograd(Algorithm):
    exact = False

    def __init__(self, side: int) -> None:
        self.side = side
        self.name = f"winograd-{side}x{side}"

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        fits = (
            direction == FWD and operands.dtype == "float32" and plain.kernel == (3, 3)
            and plain.stride == plain.dilation == (1, 1) and plain.groups == 1 and min(plain.padding) >= 0
        )  # fmt: skip
        if not fits:
            return None
        edge = (self.side + 2) ** 2
        tiles = ceil(plain.feature[0] / self.side) * ceil(plain.feature[1] / self.side)
        weights = edge * plain.channels * plain.filters + 9 * plain.channels * plain.filters

        def needed(samples: int) -> int:
            inputs = 2 * edge * plain.channels * samples * tiles
            outputs = (edge + self.side**2) * plain.filters * samples * tiles
            padded = plain.channels * samples * tiles * self.side**2 + plain.channels * samples * 4 * (
                plain.feature[0] + plain.feature[1] + 3 * self.side
            )
            return 4 * (inputs + outputs + padded + 2 * weights + 4096)

        if needed(1) > cap:
            return None
        samples = largest(plain.batch, lambda count: needed(count) <= cap)
        all_tiles = plain.batch * tiles
        flops = 2 * edge * all_tiles * (
            plain.channels * plain.filters + edge * plain.channels + self.side**2 * plain.filters
        )  # fmt: skip
        moved = 4 * all_tiles * edge * (4 * plain.channels + 3 * plain.filters) + 12 * weights
        return Plan(
            self.name, False, samples, plain.feature, needed(samples), flops, moved,
            ceil(plain.batch / samples) * 8,
        )  # fmt: skip

    def forward(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        feature: torch.Tensor,
    ) -> None:
        side, edge = self.side, self.side + 2
        of_image, of_weight, of_result = _squares(side, image.device)
        rows, columns = (ceil(size / side) for size in plain.feature)
        kernels = weight.new_empty((9, plain.filters, plain.channels))
        kernels.view(3, 3, plain.filters, plain.channels).copy_(weight.permute(2, 3, 0, 1))
        factors = torch.mm(of_weight, kernels.view(9, -1)).view(edge * edge, plain.filters, plain.channels)
        sizes = (rows * side + 2, columns * side + 2)
        padded = image.new_zeros((plain.channels, plan.samples, *sizes))
        top, left = plain.padding
        height, width = (min(size, total - p) for size, total, p in zip(plain.image, sizes, plain.padding))
        for first, last in ranges(plain.batch, plan.samples):
            some = padded[:, : last - first]
            some[:, :, top : top + height, left : left + width].copy_(
                image[first:last, :, :height, :width].transpose(0, 1)
            )
            of_channel, of_sample, of_row, _ = some.stride()
            tiles = some.as_strided(
                (edge, edge, plain.channels, last - first, rows, columns),
                (of_row, 1, of_channel, of_sample, side * of_row, side),
            )
            flat = image.new_empty(tiles.shape)
            flat.copy_(tiles)
            transformed = torch.mm(of_image, flat.view(edge * edge, -1))
            del flat
            products = torch.bmm(factors, transformed.view(edge * edge, plain.channels, -1))
            del transformed
            results = torch.mm(of_result, products.view(edge * edge, -1))
            del products
            results = results.view(side, side, plain.filters, last - first, rows, columns)
            _placed(results, bias, feature[first:last])


@cache
def _squares(side: int, device: torch.device) -> list[torch.Tensor]:
    """The Kronecker product of each matrix with itself: it transforms both dimensions of a tile at once.

    Kept, since a copy from the host has no place in a graph that is captured.
    """
    matrices = [torch.tensor(matrix, dtype=torch.float32, device=device) for matrix in _MATRICES[side]]
    return [torch.kron(matrix, matrix) for matrix in matrices]


def _placed(results: torch.Tensor, bias: torch.Tensor | None, feature: torch.Tensor) -> None:
    """Put tiles ``(m, m, K, n, rows, columns)`` into ``feature`` ``(n, K, height, width)``, row by row of a
    tile, so that no tile larger than the feature needs a copy."""
    side = results.shape[0]
    for row in range(side):
        for column in range(side):
            target = feature[:, :, row::side, column::side]
            source = results[row, column, :, :, : target.shape[2], : target.shape[3]].transpose(0, 1)
            if bias is None:
                target.copy_(source)
            else:
                torch.add(source, bias.view(-1, 1, 1), out=target)
