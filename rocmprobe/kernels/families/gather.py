"""Forward and bwd-data as gathers: each output position sums weighted input positions over the taps.

In each spatial dimension, a gather writes the positions ``write_first + i * write_step`` for ``i`` below
``count``. For each tap ``j`` below ``taps``, it multiplies the weight at ``tap_first + j * tap_step`` by the
element at ``i * read_step + read_first + j * read_tap_step``. It skips positions outside of the tensor.

Forward is one gather. bwd-data has one gather for each phase. A phase is the set of image positions with
equal remainders modulo the stride.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import gcd

from rocmprobe.geometry import BWD_DATA, FWD, Geometry


@dataclass(frozen=True)
class Axis:
    """One spatial dimension of a gather. The module's docstring defines the fields."""

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
        """Return an equivalent axis whose taps read positions in ascending order."""
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
    """Return the gathers of a direction, each as one :class:`Axis` per spatial dimension.

    Each position of the result is written by exactly one gather.

    Raises:
        ValueError: for bwd-weights, which is not a gather.
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
    """Return one axis of the gather that writes the image positions with remainder ``phase``."""
    # Tap ``k`` of window ``w`` reads the image position ``w * stride - padding + k * dilation``.
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
