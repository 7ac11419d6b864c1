"""First calls of convolutions: their duration in new processes and with new input sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from rocmprobe.judge.assessment import convolutions_pass
from rocmprobe.judge.blame import search_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.noise import time_of
from rocmprobe.model.results import Finding, Outcome

#: A first call that takes more seconds than this gives a finding. ResNet-50 has 23 different convolutions. At
#: 5 s for each, its first iteration takes two minutes.
SLOW_FIRST_CALL = 5.0
#: Another setting is much faster if its slowest first call takes at most this fraction of the time of the
#: fastest first call under ``default``.
MUCH_LESS = 0.5
#: Minimum number of cold starts, and of warm starts, for a comparison.
_ENOUGH_STARTS = 2
#: If a call with a new input size takes more seconds than the first number, there is a finding. If it takes
#: more than the second, the finding is a warning.
SLOW_NEW_SIZE, VERY_SLOW_NEW_SIZE = 1.0, 10.0
#: Another setting counts as faster for new sizes if its time is at most ``MUCH_LESS`` times as long, and at
#: least this many seconds shorter.
AT_LEAST = 0.1
#: The minutes per hour that new input sizes cost depend on how often the size changes. Reports assume that 1
#: of this many calls has a new size.
CALLS = 10
_HOUR = 3600.0


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
        yield Finding(
            "slow-first-call",
            "info",
            "cold-compile-slow",
            search_layer(run),
            f"The first call of a convolution takes {default.cold.median:.0f} s with {name}'s defaults, and "
            f"{best.cold.median:.1f} s with {best.setting}",
            tuple(_describe(each) for each in (default, best)),
            f"A network pays this once per shape. Try {best.setting}, and compare its speed after the first "
            f"calls. {_kept(default)}",
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


@dataclass(frozen=True)
class NewSizes:
    """Seconds of calls with input sizes that are new to the process.

    ``new`` is the mean over ``sizes`` new sizes, and ``largest`` the maximum. ``known`` is the time of a call
    with a known size.
    """

    device: str
    setting: str
    new: float
    largest: float
    known: float
    sizes: int

    @property
    def calls_an_hour(self) -> float:
        """Number of calls per hour if each call has a new size."""
        return _HOUR / self.new

    @property
    def lost_minutes(self) -> float:
        """Minutes per hour that new sizes cost if one in ``CALLS`` calls has a new size."""
        extra = max(0.0, self.new - self.known)
        return 60 * extra / (extra + CALLS * self.known)


def new_sizes(outcomes: Iterable[Outcome]) -> list[NewSizes]:
    """Return the cost of new input sizes under each setting that was measured."""
    return [found for outcome in outcomes if (found := _new_sizes(outcome))]


def _new_sizes(outcome: Outcome) -> Optional[NewSizes]:
    if outcome.check != "changing-sizes" or not outcome.works:
        return None
    new, largest, known = (
        time_of(outcome.timings.get(key)) for key in ("new_size", "new_size_max", "known_size")
    )
    sizes = outcome.timings.get("sizes")
    if not new or not largest or not known or not isinstance(sizes, int):
        return None
    return NewSizes(outcome.device, outcome.setting, new, largest, known, sizes)


def quickest(run: Evidence, dtype: str, than: Optional[str]) -> Optional[tuple[NewSizes, NewSizes]]:
    """Return the costs of new input sizes under the fastest correct setting and under the setting ``than``.

    Return None if no correct setting is known to be much faster than ``than``.
    """
    found = {each.setting: each for each in new_sizes(run.outcomes) if each.device == run.device}
    right = [
        found[setting.name]
        for setting in run.settings
        if setting.name in found
        and setting.verdict != "cpu"
        and convolutions_pass(run.assess(setting, dtype, "inference"))
        and run.assess(setting, dtype, "inference").right
    ]
    own = found.get(than or "")
    best = min(right, key=lambda each: each.new, default=None)
    if own is None or best is None or best.new > MUCH_LESS * own.new or own.new - best.new < AT_LEAST:
        return None
    return best, own


def slow_new_sizes(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if calls with new input sizes are slow under ``default`` and much faster under
    another correct setting."""
    default = next((each for each in new_sizes(run.outcomes) if each.setting == "default"), None)
    better = quickest(run, "float32", "default")
    if default is None or default.new <= SLOW_NEW_SIZE or better is None:
        return
    best, name = better[0], run.library
    yield Finding(
        "changing-sizes",
        "warning" if default.new > VERY_SLOW_NEW_SIZE else "info",
        "cold-compile-slow",
        search_layer(run),
        f"Each new input size costs {default.new:.3g} s with {name}'s defaults, and {best.new:.2g} s with "
        f"{best.setting}",
        tuple(described(each) for each in (default, best)),
        f"If your input sizes keep changing, use {best.setting}. If your program uses only a few sizes, it "
        "pays once per size: see the other recommendations. Fewer sizes help under any setting: pad to "
        "multiples of 32 or more.",
    )


def described(each: NewSizes) -> str:
    return (
        f"{each.setting}: a call takes {each.known:.3g} s with a known size, and {each.new:.3g} s with a new "
        f"size (mean of {each.sizes} sizes, at most {each.largest:.3g} s). If 1 of {CALLS} calls has a new "
        f"size, new sizes cost {each.lost_minutes:.0f} minutes per hour"
    )


#: Name and description of programs whose input sizes keep changing. The name is part of a key of
#: ``Recommendation.per``.
CHANGING_SIZES = "changing-sizes"
IN_WORDS = "input sizes that keep changing"


def for_changing_sizes(run: Evidence, dtype: str, chosen: Optional[str]) -> dict[str, Mapping[str, Any]]:
    """Return the entry of ``Recommendation.per`` for programs whose input sizes keep changing.

    Return {} if no setting is known to be much faster than ``chosen``, the setting recommended for inference.
    """
    better = quickest(run, dtype, chosen)
    if better is None:
        return {}
    best, _ = better
    setting = next(each for each in run.settings if each.name == best.setting)
    answer = {
        "verdict": setting.verdict, "setting": setting.name, "env": dict(setting.env),
        "new_size_seconds": best.new,
    }  # fmt: skip
    return {f"{dtype}/{CHANGING_SIZES}": answer}


def changing_sizes_sentence(run: Evidence, dtype: str, chosen: Optional[str]) -> str:
    """Return a sentence that recommends a setting for changing input sizes, or "".

    The sentence begins with a space.
    """
    better = quickest(run, dtype, chosen)
    if better is None:
        return ""
    best, own = better
    return (
        f" For {IN_WORDS}, use the setting “{best.setting}”: a new size costs "
        f"{best.new:.2g} s instead of {own.new:.3g} s."
    )
