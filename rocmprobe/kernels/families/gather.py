"""Forward and bwd-data in one form: positions that a launch writes, and positions that it reads for each.

In each spatial dimension a launch writes the positions ``write_first + i * write_step`` for ``i`` below
``count``. For tap ``j`` below ``taps`` the launch reads ``i * read_step + read_first + j * read_tap_step``,
if the position lies inside, and the weight at ``tap_first + j * tap_step``. Forward is one such launch.
bwd-data has one launch for each phase of the stride: positions of equal remainder meet the same taps. So no
product is wasted, no value is scattered, and the sum of each value has one fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import gcd

from rocmprobe.geometry import BWD_DATA, FWD, Geometry


@dataclass(frozen=True)
class Axis:
    """One spatial dimension of a launch, see the module. ``count`` and ``taps`` may be 0."""

    count: int
    write_first: int
    write_step: int
    read_step: int
    read_first: int
    read_tap_step: int
    taps: int
    tap_first: int
    tap_step: int

    def ascending(self) -> Axis:
        """Return the same axis with its taps in ascending order of the positions that they read."""
        if self.read_tap_step >= 0 or not self.taps:
            return self
        last = self.taps - 1
        return replace(
            self,
            read_first=self.read_first + last * self.read_tap_step,
            read_tap_step=-self.read_tap_step,
            tap_first=self.tap_first + last * self.tap_step,
            tap_step=-self.tap_step,
        )


def gathers(direction: str, plain: Geometry) -> list[tuple[Axis, ...]]:
    """Return the launches of a direction, each with an axis for every spatial dimension.

    Exactly one launch writes each position of the result, with 0 taps if no window covers the position.

    Raises:
        ValueError: for bwd-weights, which reads in another form.
    """
    if direction == FWD:
        sizes = zip(plain.feature, plain.stride, plain.padding, plain.dilation, plain.kernel)
        return [tuple(Axis(o, 0, 1, s, -p, d, k, 0, 1) for o, s, p, d, k in sizes)]
    if direction != BWD_DATA:
        raise ValueError(f"no gather computes {direction}")
    by_dimension = [
        [_phase(plain, dimension, phase) for phase in range(min(stride, plain.image[dimension]))]
        for dimension, stride in enumerate(plain.stride)
    ]
    return list(product(*by_dimension))


def _phase(plain: Geometry, dimension: int, phase: int) -> Axis:
    """Return one dimension of a launch for the image positions ``phase + i * stride``.

    Window ``o`` covers a position by tap ``k`` if ``o * stride = phase + i * stride + padding - k *
    dilation``.
    """
    stride, dilation = plain.stride[dimension], plain.dilation[dimension]
    padding, kernel = plain.padding[dimension], plain.kernel[dimension]
    count = (plain.image[dimension] - phase + stride - 1) // stride
    step = stride // gcd(stride, dilation)
    meeting = [k for k in range(min(step, kernel)) if (phase + padding - k * dilation) % stride == 0]
    if not meeting:
        return Axis(count, phase, stride, 1, 0, 0, 0, 0, step)
    first = meeting[0]
    taps = (kernel - first + step - 1) // step
    origin = (phase + padding - first * dilation) // stride
    return Axis(count, phase, stride, 1, origin, -step * dilation // stride, taps, first, step)
