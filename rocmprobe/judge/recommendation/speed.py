"""Speed and memory of settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Optional

from rocmprobe.judge.assessment import representative
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.noise import ERRORS, FEWEST_REPEATS, SAME_TIME, median_error, time_of, yardsticks
from rocmprobe.judge.times import computed_seconds, counts_by_problem
from rocmprobe.model.results import DIRECTIONS, NATIVE, Outcome, Setting

#: Largest logarithm of a noise factor, so that ``math.exp`` does not overflow.
_LARGEST = 50.0
#: If the noise exceeds this factor, times are not compared, because even twice the time can then be only
#: noise.
TOO_NOISY = 2.0


@dataclass(frozen=True)
class Speed:
    """The times of settings in seconds, keyed by setting.

    ``p10`` and ``p90`` are percentiles, ``errors`` has the standard error of each time's logarithm. ``drift``
    is the factor by which the speed of a matrix product or a copy differed between settings.
    """

    seconds: Mapping[str, float]
    p10: Mapping[str, float]
    p90: Mapping[str, float]
    errors: Mapping[str, float]
    drift: float

    def is_faster(self, one: str, other: str, factor: float) -> bool:
        """Return True if ``one`` is faster than ``other`` by more than ``factor``, beyond the noise."""
        if not self.comparable(one, other) or one not in self.p90 or other not in self.p10:
            return False
        return self.p10[other] > factor * self.drift * self.p90[one]

    def level(self, one: str, other: str) -> bool:
        """Return True if the times of two settings are equal within ``SAME_TIME`` or the noise."""
        if one not in self.seconds or other not in self.seconds:
            return False
        apart = abs(math.log(self.seconds[one] / self.seconds[other]))
        return apart <= math.log(max(SAME_TIME, self.noise(one, other)))

    def noise(self, one: str, other: str) -> float:
        """Return the factor, 1 or more, by which the times of two settings can differ by noise alone."""
        errors = math.hypot(*(self.errors.get(name, 0.0) for name in (one, other)))
        return self.drift * math.exp(min(ERRORS * errors, _LARGEST))

    def comparable(self, one: str, other: str) -> bool:
        """Return True if the noise is small enough to compare the times of two settings."""
        return {one, other} <= set(self.seconds) and self.noise(one, other) <= TOO_NOISY


def too_noisy(noise: float) -> str:
    """Return the text that replaces a comparison of times if the noise is too large."""
    factor = f"{noise:.2g}" if noise < 100 else "100 or more"
    return f"speeds are not compared: the machine was busy (noise alone: up to a factor of {factor})"


def times(
    run: Evidence, names: Iterable[str], dtype: str, purpose: str, quantile: str = ""
) -> dict[str, float]:
    """Return each setting's time in seconds for the throughput problems in ``dtype``.

    The time is the geometric mean over the problems, forward plus backward. If the run tests a program
    (``--shapes``), the time is the sum over the program's convolutions. For inference, only forward times are
    used. Settings without times are left out. Problems are used only if they were timed under all remaining
    settings.

    ``quantile`` is "_p10", "_p90" or "". With "", the times are medians, or means for a program.
    """
    directions = DIRECTIONS[:1] if purpose == "inference" else DIRECTIONS
    key = ("fwd" if purpose == "inference" else "fwd_bwd") + quantile
    wanted, counts = set(names), counts_by_problem(run.results)
    timed: dict[str, dict[str, float]] = {}
    for (setting, problem), outcome in run.timed.items():
        if outcome.dtype != dtype or setting not in wanted:
            continue
        seconds = (
            computed_seconds(outcome, counts.get(problem, {}), directions, quantile or "_mean")
            if counts
            else time_of(outcome.timings.get(key))
        )
        if seconds:
            timed.setdefault(setting, {})[problem] = seconds
    common = set.intersection(*(set(by_problem) for by_problem in timed.values())) if timed else set()
    if not common:
        return {}
    together = sum if counts else geometric_mean
    return {name: together([rows[text] for text in common]) for name, rows in timed.items()}


def speed(run: Evidence, settings: Iterable[Setting], dtype: str, purpose: str) -> Speed:
    """Return the speed of ``settings``, measured on the problems that were timed under all of them."""
    found = list(settings)
    seconds, p10, p90 = (_seconds(run, found, dtype, purpose, end) for end in ("", "_p10", "_p90"))
    timed: dict[str, list[Outcome]] = {}
    for (name, _), outcome in run.timed.items():
        if name in seconds and outcome.dtype == dtype:
            timed.setdefault(name, []).append(outcome)
    errors = {
        name: median_error(p10[name], p90[name], _repeats(timed[name]))
        for name in seconds
        if name in p10 and name in p90
    }
    # A matrix product or copy on the CPU does not show whether the speed of a GPU changed.
    device = [each.name for each in found if each.verdict != "cpu" and each.name in timed]
    return Speed(seconds, p10, p90, errors, _drift([timed[name] for name in device]))


def _repeats(outcomes: Iterable[Outcome]) -> int:
    counts = [
        int(value)
        for outcome in outcomes
        for key, value in outcome.timings.items()
        if key.endswith("_repeats") and time_of(value)
    ]
    return max(1, min(counts, default=FEWEST_REPEATS))


def _drift(timed: Iterable[list[Outcome]]) -> float:
    """Return the factor by which the speed of a matrix product or a copy differs between settings."""
    measured = [
        [found for outcome in outcomes if (found := yardsticks(outcome.timings))] for outcomes in timed
    ]
    flops = [geometric_mean([each.flops for each in found]) for found in measured if found]
    moved = [geometric_mean([each.bytes for each in found]) for found in measured if found]
    return max((max(rates) / min(rates) for rates in (flops, moved) if rates), default=1.0)


def _seconds(
    run: Evidence, settings: list[Setting], dtype: str, purpose: str, quantile: str
) -> dict[str, float]:
    """Return the time of each setting.

    If several settings run the same convolutions, each of them gets the shortest of their times.
    """
    seconds = times(run, [setting.name for setting in settings], dtype, purpose, quantile)
    alike = {setting.name: _alike(run, setting) for setting in settings if setting.name in seconds}
    return {
        name: min(seconds[other] for other in alike if alike[other] == kind) for name, kind in alike.items()
    }


def _alike(run: Evidence, setting: Setting) -> str:
    """Return a key that is the same for settings that run the same convolutions."""
    if setting.bypass:
        return "bypass"
    return "native" if run.results.simulated and setting.verdict in NATIVE else setting.name


#: No device has this many bytes. A larger value is no measurement.
_MOST = 2**60


def peaks(run: Evidence, settings: Iterable[Setting], dtype: str, purpose: str) -> dict[str, float]:
    """Return the peak memory of each setting in bytes, without the operands, added up over problems.

    For inference, only the forward direction is used. A setting without measurements gets the measurements of
    its :func:`representative`, or is left out. Problems in ``dtype`` are used only if they were measured
    under all remaining settings.
    """
    measured: dict[str, dict[str, float]] = {}
    for outcome in run.outcomes:
        asked = (outcome.device, outcome.dtype) == (run.device, dtype)
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
    """Return the peak memory in bytes without the operands, or None if it was not measured."""
    if outcome.check != "memory":
        return None
    whole, above, forward = (
        _bytes(outcome.memory.get(f"{name}_bytes")) for name in ("peak", "above_output", "forward_workspace")
    )
    if purpose != "inference" or whole is None or above is None or forward is None:
        return whole
    return max(0.0, whole - above + forward)


def _bytes(value: object) -> Optional[float]:
    """Return ``value`` as a float, or None if it cannot be a number of bytes."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < _MOST else None
