"""First calls: what they cost under each setting, and whether caches survive a new process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.assessment import assess, device_of, dtypes, sound
from rocmprobe.judge.blame import library, search_layer
from rocmprobe.judge.noise import time_of
from rocmprobe.model.results import Finding, Outcome, Results

#: Seconds of a first call that are worth a finding. ResNet-50 has 23 different convolutions: at 5 s for
#: each, its first iteration takes two minutes.
SLOW_FIRST_CALL = 5.0
#: A way out: its slowest first call takes no more than this share of the quickest under ``default``.
MUCH_LESS = 0.5
#: Least number of starts of either kind for a meaningful spread.
_ENOUGH_STARTS = 2


@dataclass(frozen=True)
class FirstCalls:
    """First calls of one kind, in seconds: median, least and largest of ``starts`` processes."""

    median: float
    least: float
    largest: float
    starts: int


@dataclass(frozen=True)
class StartUp:
    """One problem under one setting, in seconds: first calls with empty and with filled databases and caches,
    and the median of the calls that follow."""

    device: str
    problem: str
    setting: str
    cold: FirstCalls
    warm: FirstCalls
    steady: float

    @property
    def cache_survives(self) -> Optional[bool]:
        """Whether every warm first call was faster than every cold one; None where too few were made."""
        if min(self.cold.starts, self.warm.starts) < _ENOUGH_STARTS:
            return None
        return self.warm.largest < self.cold.least


def start_ups(results: Results) -> list[StartUp]:
    """Every start-up that was measured, in the order of the outcomes."""
    return [found for outcome in results.outcomes if (found := _start_up(outcome))]


def _start_up(outcome: Outcome) -> Optional[StartUp]:
    if outcome.check != "start-up" or not outcome.works:
        return None
    cold, warm = (_first_calls(outcome, word) for word in ("cold", "warm"))
    steady = time_of(outcome.timings.get("steady"))
    if cold is None or warm is None or steady is None:
        return None
    return StartUp(outcome.device, outcome.problem or outcome.id, outcome.setting, cold, warm, steady)


def _first_calls(outcome: Outcome, word: str) -> Optional[FirstCalls]:
    median, least, largest = (
        time_of(outcome.timings.get(f"{word}_first_call{end}")) for end in ("", "_min", "_max")
    )
    starts = outcome.timings.get(f"{word}_starts")
    if median is None or least is None or largest is None or not isinstance(starts, int):
        return None
    return FirstCalls(median, least, largest, starts)


def slow_first_calls(results: Results) -> Iterator[Finding]:
    """A first call under ``default`` takes many seconds, and under another setting that is right, far fewer.

    Nothing on a simulated machine: there it is another library's time on another device.
    """
    if results.simulated:
        return
    found = [each for each in start_ups(results) if each.device == device_of(results)]
    slow = [each for each in found if each.setting == "default" and each.cold.median > SLOW_FIRST_CALL]
    dtype = (dtypes(results) or ("float32",))[0]
    right = {
        setting.name
        for setting in results.settings
        if setting.verdict != "cpu" and sound(assess(results, setting, dtype, "training"))
    }
    for default in slow[:1]:
        others = [
            each
            for each in found
            if each.problem == default.problem
            and each.setting in right
            and each.cold.largest <= MUCH_LESS * default.cold.least
        ]
        if not others:
            continue
        best = min(others, key=lambda each: each.cold.median)
        name = library(results)
        yield Finding(
            "slow-first-call",
            "info",
            "cold-compile-slow",
            search_layer(results),
            f"The first call of a convolution takes {default.cold.median:.0f} s with {name}'s defaults, and "
            f"{best.cold.median:.1f} s with {best.setting}",
            tuple(_describe(each) for each in (default, best)),
            f"A network pays this once for each of its shapes: try {best.setting}, and compare its speed "
            f"once started. {_kept(default)}",
        )


def _describe(each: StartUp) -> str:
    return (
        f"{each.setting}, {each.problem}: {each.cold.median:.3g} s with empty databases and caches, "
        f"{each.warm.median:.3g} s in a new process with filled ones, {each.steady:.3g} s from then on"
    )


def _kept(default: StartUp) -> str:
    if default.cache_survives:
        return f"In a second process it took {default.warm.median:.3g} s: keep the databases and caches."
    return "A second process was not seen to be faster." if default.cache_survives is False else ""
