"""Whether one time is shorter than another, or the measurement too noisy to tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from rocmprobe.model.roofline import roof

#: Times this close count as equal.
SAME_TIME = 1.1
#: No time is longer than this many seconds; what is, cannot even be a float.
_LONGEST = 1e9


@dataclass(frozen=True)
class Seconds:
    """A repeated measurement: its median and the 10th and 90th percentile."""

    median: float
    p10: float
    p90: float


@dataclass(frozen=True)
class Ratio:
    """One time over another: that of the medians, and from ``least`` to ``most`` where the spread of both
    leaves it."""

    value: float
    least: float
    most: float

    @property
    def verdict(self) -> str:
        """ "shorter" or "longer" where the whole range is on one side of 1, "same" where it is closer to
        1 than ``SAME_TIME``, else "too noisy"."""
        if self.most < 1:
            return "shorter"
        if self.least > 1:
            return "longer"
        return "same" if self.least >= 1 / SAME_TIME and self.most <= SAME_TIME else "too noisy"


def seconds(timings: Mapping[str, Any], key: str) -> Optional[Seconds]:
    """What was measured under ``key``; None where that is no time, or its spread is not there."""
    median, p10, p90 = (time_of(timings.get(f"{key}{end}")) for end in ("", "_p10", "_p90"))
    if median is None or p10 is None or p90 is None:
        return None
    return Seconds(median, p10, p90) if p10 <= median <= p90 else None


def time_of(value: Any) -> Optional[float]:
    """``value`` if it is a time; results may come from elsewhere, and hold anything."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 < value <= _LONGEST else None


def ratio(own: Seconds, other: Seconds, drift: float = 1.0) -> Ratio:
    """``own`` over ``other``. What the device's speed changed by between the two, ``drift``, may have made
    either the longer one."""
    return Ratio(own.median / other.median, own.p10 / other.p90 / drift, own.p90 / other.p10 * drift)


def drift(own: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """By what factor, 1 or more, the yardsticks say that the device's speed changed between two measurements;
    1 where one of them has none."""
    first, second = roof(own), roof(other)
    if first is None or second is None:
        return 1.0
    rates = ((first.flops, second.flops), (first.bytes, second.bytes))
    return max(max(pair) / min(pair) for pair in rates)
