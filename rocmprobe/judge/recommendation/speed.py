"""How fast settings are and what they take of memory, and which of them are level within the noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Optional

from rocmprobe.judge.assessment import device_of, representative, timed_problems, times
from rocmprobe.judge.noise import SAME_TIME, time_of
from rocmprobe.model.results import NATIVE, Outcome, Results, Setting
from rocmprobe.model.roofline import roof

#: Of normal times the range from the 10th to the 90th percentile is 2.563 standard deviations, and the median
#: of n strays by 1.253 of them over the square root of n.
_ERROR_OF_MEDIAN = 1.253 / 2.563
#: The logarithm of a factor that no two times of a run differ by.
_LARGEST = 50.0
#: Standard errors that chance leaves between two medians: in 19 of 20 cases no more.
_ERRORS = 2.0
#: The factor of noise from which on times are not compared: twice the time may then be no difference.
TOO_NOISY = 2.0
#: Rounds that every time has at least (docs/what-is-measured.md), where a file does not say how many.
_FEWEST_REPEATS = 5


@dataclass(frozen=True)
class Speed:
    """By setting, of those that were timed: seconds, and the standard error of their logarithm. ``drift`` is
    the factor by which one yardstick came out differently from setting to setting."""

    seconds: Mapping[str, float]
    errors: Mapping[str, float]
    drift: float

    def level(self, one: str, other: str) -> bool:
        """Whether both were timed and neither is faster, within the noise: what they differ by is below
        ``SAME_TIME``, or below the noise."""
        if one not in self.seconds or other not in self.seconds:
            return False
        apart = abs(math.log(self.seconds[one] / self.seconds[other]))
        return apart <= math.log(max(SAME_TIME, self.noise(one, other)))

    def noise(self, one: str, other: str) -> float:
        """Return the factor by which noise alone may make two settings differ, 1 or more."""
        errors = math.hypot(*(self.errors.get(name, 0.0) for name in (one, other)))
        return self.drift * math.exp(min(_ERRORS * errors, _LARGEST))

    def comparable(self, one: str, other: str) -> bool:
        """Return True if both were timed, and the noise is small enough to compare them."""
        return {one, other} <= set(self.seconds) and self.noise(one, other) <= TOO_NOISY


def too_noisy(noise: float) -> str:
    """Return the words that stand in place of a comparison of times."""
    factor = f"{noise:.2g}" if noise < 100 else "100 or more"
    return f"speeds are not compared: the machine was busy, and noise alone makes a factor of {factor}"


def speed(results: Results, settings: Iterable[Setting], dtype: str, purpose: str) -> Speed:
    """How fast ``settings`` are, over the problems that all of them were timed on."""
    found = list(settings)
    seconds, p10, p90 = (_seconds(results, found, dtype, purpose, end) for end in ("", "_p10", "_p90"))
    timed: dict[str, list[Outcome]] = {}
    about = device_of(results)
    for (on, name, _), outcome in timed_problems(results).items():
        if name in seconds and (on, outcome.dtype) == (about, dtype):
            timed.setdefault(name, []).append(outcome)
    errors = {
        name: _ERROR_OF_MEDIAN * max(0.0, math.log(p90[name] / p10[name])) / math.sqrt(_repeats(timed[name]))
        for name in seconds
        if name in p10 and name in p90
    }
    # The processor's own yardsticks say nothing of a GPU.
    device = [each.name for each in found if each.verdict != "cpu" and each.name in timed]
    return Speed(seconds, errors, _drift([timed[name] for name in device]))


def _repeats(outcomes: Iterable[Outcome]) -> int:
    """Of how many runs the median is at least."""
    counts = [
        int(value)
        for outcome in outcomes
        for key, value in outcome.timings.items()
        if key.endswith("_repeats") and time_of(value)
    ]
    return max(1, min(counts, default=_FEWEST_REPEATS))


def _drift(timed: Iterable[list[Outcome]]) -> float:
    """The largest of a yardstick's mean rates under each setting over the smallest. The same product and the
    same copy are timed under all of them, so that this is what times differ by without a cause."""
    roofs = [[found for outcome in outcomes if (found := roof(outcome.timings))] for outcomes in timed]
    flops = [geometric_mean([each.flops for each in found]) for found in roofs if found]
    moved = [geometric_mean([each.bytes for each in found]) for found in roofs if found]
    return max((max(rates) / min(rates) for rates in (flops, moved) if rates), default=1.0)


def _seconds(
    results: Results, settings: list[Setting], dtype: str, purpose: str, quantile: str
) -> dict[str, float]:
    """Seconds by setting. Where settings run the very same convolutions, what their times differ by is noise,
    and the smallest counts for all."""
    seconds = times(results, [setting.name for setting in settings], dtype, purpose, quantile)
    alike = {setting.name: _alike(results, setting) for setting in settings if setting.name in seconds}
    return {
        name: min(seconds[other] for other in alike if alike[other] == kind) for name, kind in alike.items()
    }


def _alike(results: Results, setting: Setting) -> str:
    """What the convolutions of a setting share with those of another: the bypass is one code, and so is
    the CPU's library that replaces a simulated machine's."""
    if setting.bypass:
        return "bypass"
    return "native" if results.simulated and setting.verdict in NATIVE else setting.name


#: Peaks this close count as equal: allocators round sizes up, for which the check allows as much.
SAME_MEMORY = 1.2
#: No device has as many bytes; what is more is no measurement.
_MOST = 2**60


def peaks(results: Results, settings: Iterable[Setting], dtype: str, purpose: str) -> dict[str, float]:
    """Bytes by setting: the peaks above the operands over the memory problems of ``dtype`` that all of them
    were measured on, added up; for inference those of the forward direction alone.

    The check runs under few settings: one without a value gets that of its representative.
    Settings of which nothing is known are left out.
    """
    measured: dict[str, dict[str, float]] = {}
    about = device_of(results)
    for outcome in results.outcomes:
        asked = (outcome.device, outcome.dtype) == (about, dtype)
        peak = _peak(outcome, purpose) if asked else None
        if peak and outcome.problem:
            measured.setdefault(outcome.setting, {})[outcome.problem] = peak
    found = {
        setting.name: measured.get(setting.name) or measured.get(representative(setting), {})
        for setting in settings
    }
    known = {name: rows for name, rows in found.items() if rows}
    common = set.intersection(*map(set, known.values())) if known else set()
    return {name: sum(rows[text] for text in common) for name, rows in known.items() if common}


def _peak(outcome: Outcome, purpose: str) -> Optional[float]:
    """Bytes above the operands. What took more than was predicted is as well measured as the rest."""
    if outcome.check != "memory":
        return None
    whole, above, forward = (
        _bytes(outcome.memory.get(f"{name}_bytes")) for name in ("peak", "above_output", "forward_workspace")
    )
    if purpose != "inference" or whole is None or above is None or forward is None:
        return whole
    return max(0.0, whole - above + forward)


def _bytes(value: object) -> Optional[float]:
    """``value`` if it is an amount of memory; results may come from elsewhere, and hold anything."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < _MOST else None
