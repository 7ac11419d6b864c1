"""Slow first calls of convolutions in new processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.assessment import convolutions_pass
from rocmprobe.judge.blame import search_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.noise import time_of
from rocmprobe.knowledge.settings import title as title_of
from rocmprobe.model.results import Finding, Outcome

#: A first call that takes more seconds than this gives a finding. ResNet-50 has 23 different convolutions. At
#: 5 s for each, its first iteration takes two minutes.
SLOW_FIRST_CALL = 5.0
#: Another setting is much faster if its slowest first call takes at most this fraction of the time of the
#: fastest first call under ``default``.
MUCH_LESS = 0.5
#: Minimum number of cold starts, and of warm starts, for a comparison.
_ENOUGH_STARTS = 2


@dataclass(frozen=True)
class FirstCalls:
    """Seconds of the first call: median, smallest and largest over ``starts`` processes."""

    median: float
    least: float
    largest: float
    starts: int


@dataclass(frozen=True)
class StartUp:
    """First calls of one problem under one setting.

    ``cold`` are calls with empty databases and caches, ``warm`` are calls with filled ones. ``steady`` is the
    median of later calls in seconds.
    """

    device: str
    problem: str
    setting: str
    cold: FirstCalls
    warm: FirstCalls
    steady: float

    @property
    def cache_survives(self) -> Optional[bool]:
        """True if filled caches made every first call faster, or None if there are too few calls."""
        if min(self.cold.starts, self.warm.starts) < _ENOUGH_STARTS:
            return None
        return self.warm.largest < self.cold.least


def start_ups(outcomes: Iterable[Outcome]) -> list[StartUp]:
    """Return all start-up measurements in ``outcomes``."""
    return [found for outcome in outcomes if (found := _start_up(outcome))]


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


def slow_first_calls(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if a first call is slow under ``default`` and much faster under another correct
    setting."""
    # In a simulation, the times are not from MIOpen on the GPU.
    if run.results.simulated:
        return
    found = [each for each in start_ups(run.outcomes) if each.device == run.device]
    slow = [each for each in found if each.setting == "default" and each.cold.median > SLOW_FIRST_CALL]
    dtype = (run.dtypes or ("float32",))[0]
    right = {
        setting.name
        for setting in run.settings
        if setting.verdict != "cpu" and convolutions_pass(run.assess(setting, dtype, "training"))
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
        name = run.library
        title = (
            f"The first call of a convolution takes {default.cold.median:.0f} s with {name}'s defaults, and "
            f"{best.cold.median:.1f} s with {title_of(best.setting)}"
        )
        evidence = tuple(_describe(each) for each in (default, best))
        advice = (
            f"A network pays this once per shape. Try the setting “{title_of(best.setting)}”, and compare "
            f"its speed after the first calls. {_kept(default)}"
        )
        yield Finding(
            "slow-first-call", "info", "cold-compile-slow", search_layer(run), title, evidence, advice
        )


def _describe(each: StartUp) -> str:
    return (
        f"{each.setting}, {each.problem}: {each.cold.median:.3g} s with empty databases and caches, "
        f"{each.warm.median:.3g} s in a new process with filled ones, {each.steady:.3g} s from then on"
    )


def _kept(default: StartUp) -> str:
    if default.cache_survives:
        return f"In a second process it took {default.warm.median:.3g} s, so keep the databases and caches."
    return "A second process was not faster." if default.cache_survives is False else ""
