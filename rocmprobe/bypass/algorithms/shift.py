"""Shifted views of the padded image, one product for each tap (stride 1): no columns at all.

With the padded image as one long row for each channel, a tap is a view that begins a few places later.
The product has values between the rows that belong to no window; they are left out when it is copied.
Anderson, Vasudevan, Keane and Gregg, "Low-memory GEMM-based convolution algorithms for deep neural
networks", 2017 (kn2row).

Workspace: padded image n * C * padded * a, product n * K * padded * a, weight w * a, bias K * a;
bwd-weights: the gradient takes the place of the product, and the sum that of the weight.
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
    accumulation_dtype,
    largest,
    packed,
    weight_traffic,
)
from rocmprobe.bypass.algorithms.columns import index, overlap
from rocmprobe.bypass.algorithms.gemm import ranges
from rocmprobe.kernels.geometry import Geometry


class Shift(Algorithm):
    name = "shift"

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        if direction == BWD_DATA or set(plain.stride) != {1} or plain.groups != 1:
            return None
        needed = _needed(plain, operands)
        if needed(1, plain.feature) > cap:
            return None
        samples = largest(plain.batch, lambda count: needed(count, plain.feature) <= cap)
        positions = plain.batch * prod(plain.span(plain.feature))
        flops = 2 * plain.filters * plain.depth * positions
        moved = (2 * plain.taps * plain.filters + 2 * plain.channels) * positions * operands.wide
        chunks = ceil(plain.batch / samples)
        moved += weight_traffic(plain, operands, direction, chunks + 3)
        launches = chunks * (3 + plain.taps)
        return Plan(
            self.name, False, samples, plain.feature, needed(samples, plain.feature), flops, moved, launches
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
        taps = _taps(weight, plain)
        padded = Padded(image, plain, plan.samples)
        sums = image.new_empty((plain.filters, plan.samples, *padded.sizes), dtype=taps.dtype)
        start = None if bias is None else bias.to(taps.dtype).view(-1, 1)
        for first, last in ranges(plain.batch, plan.samples):
            rows = padded.rows(first, last)
            total = sums[:, : last - first].reshape(plain.filters, -1)
            length = rows.shape[1] - padded.offsets[-1]
            out = total[:, :length]
            for number, (tap, offset) in enumerate(zip(taps, padded.offsets)):
                view = rows[:, offset : offset + length]
                if number:
                    out.addmm_(tap, view)
                elif start is None:
                    torch.mm(tap, view, out=out)
                else:
                    torch.addmm(start, tap, view, out=out)
            windows = total.view(plain.filters, last - first, *padded.sizes)
            feature[first:last].copy_(windows[among_padded(plain)].transpose(0, 1))

    def backward_weights(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        gradient: torch.Tensor,
        weight_gradient: torch.Tensor,
    ) -> None:
        padded = Padded(image, plain, plan.samples)
        dtype = accumulation_dtype(image.dtype)
        spread = gradient.new_zeros((plain.filters, plan.samples, *padded.sizes), dtype=dtype)
        totals = gradient.new_empty((plain.taps, plain.filters, plain.channels), dtype=dtype)
        for number, (first, last) in enumerate(ranges(plain.batch, plan.samples)):
            rows = padded.rows(first, last)
            some = spread[:, : last - first]
            some[among_padded(plain)].copy_(gradient[first:last].transpose(0, 1))
            gradients = some.reshape(plain.filters, -1)
            length = rows.shape[1] - padded.offsets[-1]
            for total, offset in zip(totals, padded.offsets):
                view = rows[:, offset : offset + length].t()
                if number:
                    total.addmm_(gradients[:, :length], view)
                else:
                    torch.mm(gradients[:, :length], view, out=total)
        shape = (*plain.kernel, plain.filters, plain.channels)
        spatial = len(plain.kernel)
        weight_gradient.copy_(totals.view(shape).permute(spatial, spatial + 1, *range(spatial)))


class Padded:
    """The padded image, channels first, as one row of positions for each channel."""

    def __init__(self, image: torch.Tensor, plain: Geometry, samples: int) -> None:
        self._image = image
        self._plain = plain
        self.sizes = plain.span(plain.feature)
        dtype = accumulation_dtype(image.dtype)
        self._buffer = image.new_zeros((plain.channels, samples, *self.sizes), dtype=dtype)
        # Padding may be negative, and positions behind the last window are not needed.
        self._source, self._target = overlap([-p for p in plain.padding], self.sizes, plain.image)
        steps = [prod(self.sizes[axis + 1 :]) for axis in range(len(self.sizes))]
        self.offsets = [
            sum(tap * d * step for tap, d, step in zip(taps, plain.dilation, steps))
            for taps in product(*map(range, plain.kernel))
        ]

    def rows(self, first: int, last: int) -> torch.Tensor:
        some = self._buffer[:, : last - first]
        everything = slice(None)
        some[index(everything, everything, *self._target)].copy_(
            self._image[first:last].transpose(0, 1)[index(everything, everything, *self._source)]
        )
        return some.reshape(self._plain.channels, -1)


def among_padded(plain: Geometry) -> tuple[int | slice, ...]:
    """Where the windows lie in ``(K, n, *padded)``."""
    return index(slice(None), slice(None), *(slice(size) for size in plain.feature))


def _needed(plain: Geometry, operands: Operands) -> Needed:
    def needed(samples: int, _: Sequence[int]) -> int:
        positions = samples * prod(plain.span(plain.feature))
        # A last chunk of fewer samples is copied before it is a matrix.
        twice = 2 if samples < plain.batch and plain.batch % samples else 1
        sides = (plain.channels + plain.filters) * positions * twice
        return (sides + plain.filters * plain.depth + plain.filters) * operands.wide

    return needed


def _taps(weight: torch.Tensor, plain: Geometry) -> torch.Tensor:
    """``(taps, filters, channels)`` in the dtype of the GEMMs."""
    spatial = weight.dim() - 2
    return packed(weight.permute(*range(2, 2 + spatial), 0, 1)).view(
        plain.taps, plain.filters, plain.channels
    )
