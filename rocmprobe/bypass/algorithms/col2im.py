"""Algorithm for bwd-data that multiplies weight and gradient, then adds the columns to the image (col2im).

Workspace (symbols: see ``base``):

- columns: n * C * taps * t * a
- weight: w * a
- bias: max(C, K) * a
- gradient: n * K * t * a
- for fp16 and bf16: a copy of n samples of the image in fp32
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import ceil, prod

import torch

from rocmprobe.bypass.algorithms.base import (
    BWD_DATA,
    Algorithm,
    Needed,
    Operands,
    Plan,
    gemm_flops,
    largest_chunk,
    weight_traffic,
)
from rocmprobe.bypass.algorithms.columns import add_back
from rocmprobe.bypass.algorithms.gemm import Buffer, matrices_in, multiply, ranges
from rocmprobe.bypass.algorithms.im2col import chunk, inside, weight_matrices
from rocmprobe.geometry import Geometry


class Col2im(Algorithm):
    name = "col2im"

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        if direction != BWD_DATA:
            return None
        needed = _needed(plain, operands)
        samples, tile, workspace = largest_chunk(plain.feature, chunk(plain, operands), needed, cap)
        pieces = ceil(plain.batch / samples) * prod(ceil(w / t) for w, t in zip(plain.feature, tile))
        columns = plain.batch * plain.channels * plain.taps * prod(plain.feature) * operands.wide
        return Plan(
            self.name, False, samples, tile, workspace, gemm_flops(plain),
            4 * columns + weight_traffic(plain, operands, direction, pieces), pieces * (2 + plain.taps),
        )  # fmt: skip

    def backward_data(
        self,
        plan: Plan,
        plain: Geometry,
        gradient: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        image: torch.Tensor,
    ) -> None:
        transposed = weight_matrices(weight, plain).transpose(1, 2)
        dtype = transposed.dtype
        columns, staged, sums = (Buffer(gradient, dtype) for _ in range(3))
        start = None if bias is None else bias.reshape(1, -1, *(1 for _ in plain.image))
        for first, last in ranges(plain.batch, plan.samples):
            # Taps of neighbouring windows add to the same element, so the sum must stay in fp32 until it is
            # complete.
            target = image[first:last]
            total = target if target.dtype == dtype else sums.take(target.shape)
            if start is None:
                total.zero_()
            else:
                total.copy_(start.expand(total.shape))
            for box in product(*(ranges(size, step) for size, step in zip(plain.feature, plan.tile))):
                features = matrices_in(inside(gradient[first:last], box), plain.groups, staged, dtype)
                taps = columns.take((plain.groups, plain.depth, features.shape[-1]))
                multiply(transposed, features, taps)
                add_back(total, taps, plain, box)
            if total is not target:
                target.copy_(total)


def _needed(plain: Geometry, operands: Operands) -> Needed:
    weight = plain.filters * plain.depth

    def needed(samples: int, windows: Sequence[int]) -> int:
        columns = samples * plain.channels * plain.taps * prod(windows)
        gradient = samples * plain.filters * prod(windows)
        image = samples * plain.channels * prod(plain.image) if operands.wide != operands.size else 0
        vector = max(plain.filters, plain.channels)
        return (columns + weight + gradient + image + vector) * operands.wide

    return needed
