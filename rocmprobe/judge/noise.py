"""Comparison of two times within their noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

#: Times that differ by at most this factor count as equal.
SAME_TIME = 1.1
#: Standard error of a median of N normally distributed times, as a fraction of (p90 - p10) / sqrt(N). With
#: the standard deviation s, the standard error is 1.253 s / sqrt(N), and p90 - p10 is 2.563 s.
_ERROR_OF_MEDIAN = 1.253 / 2.563
#: By chance, two medians differ by more than this many standard errors in only 1 of 20 cases.
ERRORS = 2.0
#: Assumed number of measurements for each median if a file does not contain this number.
FEWEST_REPEATS = 5
#: Shortest and longest plausible time in seconds. A file can contain any number, and ratios of other times
#: can exceed the range of a float.
_SHORTEST, _LONGEST = 1e-9, 1e9


@dataclass(frozen=True)
class Seconds:
    """A repeated measurement: its median and its 10th and 90th percentile."""

    median: float
    p10: float
    p90: float


@dataclass(frozen=True)
class Ratio:
    """A ratio of two times. Because of noise, the true ratio can be anything from ``least`` to ``most``."""

    value: float
    least: float
    most: float

    @property
    def verdict(self) -> str:
        """The verdict "shorter", "longer", "same" (within ``SAME_TIME``) or "too noisy"."""
        if self.most < 1:
            return "shorter"
        if self.least > 1:
            return "longer"
        return "same" if self.least >= 1 / SAME_TIME and self.most <= SAME_TIME else "too noisy"


def seconds(timings: Mapping[str, object], key: str) -> Optional[Seconds]:
    """Return the measurement ``key``, or None if its median or a percentile is missing or invalid."""
    median, p10, p90 = (time_of(timings.get(f"{key}{end}")) for end in ("", "_p10", "_p90"))
    if median is None or p10 is None or p90 is None:
        return None
    return Seconds(median, p10, p90) if p10 <= median <= p90 else None


def time_of(value: object) -> Optional[float]:
    """Return ``value`` as a float, or None if it is no time in seconds (1e-9 to 1e9)."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and _SHORTEST <= value <= _LONGEST:
        return float(value)
    return None


def median_error(p10: float, p90: float, repeats: float) -> float:
    """Return the standard error of the logarithm of a median time."""
    return _ERROR_OF_MEDIAN * max(0.0, math.log(p90 / p10)) / math.sqrt(repeats)


def change(old: Mapping[str, object], new: Mapping[str, object], key: str) -> Optional[tuple[float, float]]:
    """Return new / old of the time ``key``, and the standard error of its logarithm.

    Return None if one of the two measurements is missing or invalid.
    """
    before, after = seconds(old, key), seconds(new, key)
    if before is None or after is None:
        return None
    errors = (
        median_error(measured.p10, measured.p90, time_of(timings.get(f"{key}_repeats")) or FEWEST_REPEATS)
        for measured, timings in ((before, old), (after, new))
    )
    return after.median / before.median, math.hypot(*errors)


def ratio(own: Seconds, other: Seconds, drift: float = 1.0) -> Ratio:
    """Return the ratio ``own`` over ``other`` with its range within the noise."""
    return Ratio(own.median / other.median, own.p10 / other.p90 / drift, own.p90 / other.p10 * drift)


@dataclass(frozen=True)
class Yardsticks:
    """Operations per second of a matrix product, and bytes per second of a copy."""

    flops: float
    bytes: float


def yardsticks(timings: Mapping[str, object]) -> Optional[Yardsticks]:
    """Return the device's rates, or None if ``timings`` lacks a measurement.

    ``timings`` has the seconds ``gemm`` and ``copy``, and the amounts ``gemm_flops`` and ``copy_bytes``.
    """
    flops = _rate(timings.get("gemm_flops"), timings.get("gemm"))
    moved = _rate(timings.get("copy_bytes"), timings.get("copy"))
    return Yardsticks(flops, moved) if flops and moved else None


def _rate(amount: object, seconds: object) -> Optional[float]:
    if isinstance(amount, (int, float)) and isinstance(seconds, (int, float)):
        # Times and amounts of a file can be too large for a float.
        return amount / seconds if 0 < amount < 1e30 and 0 < seconds < 1e30 else None
    return None


def drift(own: Mapping[str, object], other: Mapping[str, object]) -> float:
    """Return the factor, 1 or more, by which the speed of a matrix product or a copy changed."""
    first, second = yardsticks(own), yardsticks(other)
    if first is None or second is None:
        return 1.0
    rates = ((first.flops, second.flops), (first.bytes, second.bytes))
    return max(max(pair) / min(pair) for pair in rates)
