"""One input channel in each group: shifted multiply-adds, one for each tap, with no GEMM and no columns.
Forward and bwd-data only: for the weight the columns are faster.

Workspace: padded image n * C * span * b. Not for fp16 and bf16.
"""

from __future__ import annotations

from itertools import product
from math import ceil, prod

import torch

from rocmprobe.bypass.algorithms.base import (
    BWD_WEIGHTS,
    Algorithm,
    Operands,
    Plan,
    gemm_flops,
    largest,
)
from rocmprobe.bypass.algorithms.columns import Covered, index, overlap
from rocmprobe.bypass.algorithms.gemm import ranges
from rocmprobe.geometry import Geometry

#: What a run of neighbouring windows costs by itself, in windows.
_RUN = 16


class Depthwise(Algorithm):
    name = "depthwise"

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        # Half precision would be widened tap by tap.
        half = operands.wide != operands.size
        if direction == BWD_WEIGHTS or plain.groups != plain.channels or half:
            return None

        def needed(samples: int) -> int:
            span, windows = prod(plain.span(plain.feature)), prod(plain.feature)
            image = samples * plain.channels * span * operands.wide
            feature = samples * plain.filters * windows * operands.wide
            weight = 2 * plain.filters * plain.taps * operands.wide
            return image + feature + weight

        if needed(1) > cap:
            return None
        samples = largest(plain.batch, lambda count: needed(count) <= cap)
        runs = plain.batch * plain.filters * prod(plain.feature[:-1])
        moved = plain.taps * runs * (plain.feature[-1] + _RUN) * operands.wide
        launches = ceil(plain.batch / samples) * (3 + plain.taps)
        return Plan(
            self.name, False, samples, plain.feature, needed(samples), gemm_flops(plain), moved, launches
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
        covered = Covered(image, plain, plan.samples, plain.feature)
        factors = _factors(weight, plain)
        start = None if bias is None else bias.view(1, *factors[0].shape[1:])
        for first, last in ranges(plain.batch, plan.samples):
            target = _by_channel(feature[first:last], plain)
            for number, (factor, view) in enumerate(zip(factors, _views(covered, plain, first, last))):
                if number:
                    target.addcmul_(view, factor)
                elif start is None:
                    torch.mul(view, factor, out=target)
                else:
                    torch.addcmul(start, view, factor, out=target)

    def backward_data(
        self,
        plan: Plan,
        plain: Geometry,
        gradient: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        image: torch.Tensor,
    ) -> None:
        factors = _factors(weight, plain)
        start = None if bias is None else bias.view(1, -1, *(1 for _ in plain.image))
        spread = gradient.new_empty((plan.samples, plain.channels, *plain.span(plain.feature)))
        for first, last in ranges(plain.batch, plan.samples):
            covered = spread[: last - first]
            covered.zero_()
            gradients = _by_channel(gradient[first:last], plain)
            for factor, view in zip(factors, _taps(covered, plain)):
                for multiple in range(plain.filters // plain.groups):
                    view.addcmul_(gradients[:, :, multiple], factor[:, :, multiple])
            target = image[first:last]
            if start is None:
                target.zero_()
            else:
                target.copy_(start.expand(target.shape))
            inner, source = overlap([-p for p in plain.padding], covered.shape[2:], plain.image)
            everything = slice(None)
            target[index(everything, everything, *inner)].add_(
                covered[index(everything, everything, *source)]
            )


def _by_channel(tensor: torch.Tensor, plain: Geometry) -> torch.Tensor:
    """``(n, filters, *spatial)`` as ``(n, channels, filters / channels, *spatial)``, a view."""
    shape = (tensor.shape[0], plain.channels, plain.filters // plain.groups, *tensor.shape[2:])
    of_sample, of_filter, *inner = tensor.stride()
    return tensor.as_strided(shape, (of_sample, of_filter * shape[2], of_filter, *inner))


def _factors(weight: torch.Tensor, plain: Geometry) -> torch.Tensor:
    """For each tap ``(1, channels, filters / channels, 1, ...)``."""
    by_tap = weight.reshape(plain.channels, plain.filters // plain.groups, plain.taps)
    return by_tap.permute(2, 0, 1).reshape(plain.taps, 1, *by_tap.shape[:2], *(1 for _ in plain.kernel))


def _views(covered: Covered, plain: Geometry, first: int, last: int) -> list[torch.Tensor]:
    """For each tap what it meets in every window, ``(n, channels, 1, *feature)``."""
    box = [(0, size) for size in plain.feature]
    return [view.unsqueeze(2) for view in _taps(covered.part(first, last, box), plain)]


def _taps(covered: torch.Tensor, plain: Geometry) -> list[torch.Tensor]:
    views = []
    for taps in product(*map(range, plain.kernel)):
        inner = [
            slice(tap * d, tap * d + (size - 1) * s + 1, s)
            for tap, d, size, s in zip(taps, plain.dilation, plain.feature, plain.stride)
        ]
        views.append(covered[index(slice(None), slice(None), *inner)])
    return views
