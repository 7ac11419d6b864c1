"""Algorithm that multiplies the weight by the columns of the image (im2col).

Source: Chellapilla, Puri and Simard, "High performance convolutional neural networks for document
processing", 2006.

Workspace (symbols: see ``base``):

- columns: n * C * taps * t * a
- padded region under a tile: n * C * span(t) * b, where span(t) is the number of positions in the region
- weight: w * a
- bias: max(C, K) * a
- product: n * K * t * a, or nothing if the product is written directly into the result
- gradient (only in bwd-weights, instead of the product): n * K * t * a
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
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
    gemm_flops,
    largest_chunk,
    weight_traffic,
)
from rocmprobe.bypass.algorithms.columns import Box, Windows, index
from rocmprobe.bypass.algorithms.gemm import Buffer, accumulate, as_matrices, matrices_in, multiply, ranges
from rocmprobe.geometry import Geometry

#: Number of windows whose columns are multiplied in one product on a CPU. With fewer windows, the columns
#: stay in the caches. With more windows, the matrix product is more efficient.
CPU_WINDOWS = 2048


class Im2col(Algorithm):
    name = "im2col"

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        if direction == BWD_DATA:
            return None
        needed = _needed(plain, operands, direction == FWD)
        samples, tile, workspace = largest_chunk(plain.feature, chunk(plain, operands), needed, cap)
        pieces = ceil(plain.batch / samples) * prod(ceil(w / t) for w, t in zip(plain.feature, tile))
        columns = plain.batch * plain.channels * plain.taps * prod(plain.feature) * operands.wide
        moved = 2 * columns + weight_traffic(plain, operands, direction, pieces)
        return Plan(self.name, False, samples, tile, workspace, gemm_flops(plain), moved, pieces * 4)

    def forward(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        feature: torch.Tensor,
    ) -> None:
        matrices = weight_matrices(weight, plain)
        dtype = matrices.dtype
        windows = Windows(image, plain, plan.samples, plan.tile, dtype)
        products = Buffer(image, dtype)
        by_group = None if bias is None else bias.to(dtype).reshape(plain.groups, -1, 1)
        for box, first, last in pieces(plain, plan):
            columns = windows.columns(first, last, box)
            target = inside(feature[first:last], box)
            in_place = (
                as_matrices(target, plain.groups) if last - first == 1 and target.dtype == dtype else None
            )
            if in_place is not None:
                multiply(matrices, columns, in_place[0], by_group)
            else:
                channels_first = target.transpose(0, 1)
                result = products.take(channels_first.shape)
                multiply(matrices, columns, result.view(*matrices.shape[:2], -1), by_group)
                channels_first.copy_(result)

    def backward_weights(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        gradient: torch.Tensor,
        weight_gradient: torch.Tensor,
    ) -> None:
        dtype = accumulation_dtype(image.dtype)
        windows = Windows(image, plain, plan.samples, plan.tile, dtype)
        staged = Buffer(gradient, dtype)
        total = weight_total(weight_gradient, plain, dtype)
        for number, (box, first, last) in enumerate(pieces(plain, plan)):
            columns = windows.columns(first, last, box)
            gradients = matrices_in(inside(gradient[first:last], box), plain.groups, staged, dtype)
            accumulate(total, gradients, columns, first=number == 0)
        store_total(total, weight_gradient)


def chunk(plain: Geometry, operands: Operands) -> int:
    """Return the maximum number of samples in a chunk.

    On a GPU, this is the whole batch. On a CPU, the samples of a chunk have at most ``CPU_WINDOWS`` windows
    in total. If one sample has more windows, return 1.
    """
    if operands.device_type != "cpu":
        return plain.batch
    return min(plain.batch, max(1, CPU_WINDOWS // prod(plain.feature)))


def _needed(plain: Geometry, operands: Operands, forward: bool) -> Needed:
    padded = plain.reaches_outside()
    weight = plain.filters * plain.depth
    result_as_it_lies = forward and operands.wide == operands.size and not operands.channels_last

    def needed(samples: int, windows: Sequence[int]) -> int:
        columns = samples * plain.channels * plain.taps * prod(windows)
        window = samples * plain.channels * prod(plain.span(windows)) if padded else 0
        whole_rows = tuple(windows[1:]) == plain.feature[1:]
        in_place = result_as_it_lies and samples == 1 and whole_rows
        result = 0 if in_place else samples * plain.filters * prod(windows)
        vector = max(plain.filters, plain.channels)
        return (columns + weight + result + vector) * operands.wide + window * operands.size

    return needed


def weight_matrices(weight: torch.Tensor, plain: Geometry) -> torch.Tensor:
    """Return the weight as ``(groups, filters / groups, depth)`` in the dtype of the matrix products."""
    dtype = accumulation_dtype(weight.dtype)
    if weight.dtype != dtype:
        weight = weight.to(dtype, memory_format=torch.contiguous_format)
    return weight.reshape(plain.groups, plain.filters // plain.groups, plain.depth)


def weight_total(weight_gradient: torch.Tensor, plain: Geometry, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor ``(groups, filters / groups, depth)`` in which to sum up the weight gradient.

    The tensor is a view of ``weight_gradient`` if possible.
    """
    shape = (plain.groups, plain.filters // plain.groups, plain.depth)
    if weight_gradient.dtype == dtype and weight_gradient.is_contiguous():
        return weight_gradient.view(shape)
    return weight_gradient.new_empty(shape, dtype=dtype)


def store_total(total: torch.Tensor, weight_gradient: torch.Tensor) -> None:
    """Copy ``total`` into ``weight_gradient`` if ``total`` is separate memory."""
    if total.data_ptr() != weight_gradient.data_ptr():
        weight_gradient.copy_(total.view(weight_gradient.shape))


def pieces(plain: Geometry, plan: Plan) -> Iterator[tuple[Box, int, int]]:
    """Yield (box of windows, first sample, last sample + 1) for each tile and each chunk of samples."""
    for box in product(*(ranges(size, step) for size, step in zip(plain.feature, plan.tile))):
        for first, last in ranges(plain.batch, plan.samples):
            yield box, first, last


def inside(feature: torch.Tensor, box: Box) -> torch.Tensor:
    """Return the part of ``feature`` for the windows in ``box``."""
    return feature[index(slice(None), slice(None), *(slice(begin, end) for begin, end in box))]
