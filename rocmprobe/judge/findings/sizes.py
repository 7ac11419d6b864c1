"""Programs whose input sizes keep changing: what each new size costs under a setting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.assessment import assess, device_of, sound
from rocmprobe.judge.blame import library, search_layer
from rocmprobe.judge.noise import time_of
from rocmprobe.model.results import Finding, Outcome, Results

#: Seconds of a new size that are worth a finding, and that are worth a warning.
SLOW_NEW_SIZE, VERY_SLOW_NEW_SIZE = 1.0, 10.0
#: Another setting is better where a new size takes no more than this share, and so many seconds less.
MUCH_LESS, AT_LEAST = 0.5, 0.1
#: Of so many calls one has a new size, in the hour of work that is reported.
CALLS = 10
_HOUR = 3600.0


@dataclass(frozen=True)
class NewSizes:
    """Seconds of a call with a new size under one setting, the mean over ``sizes`` of them and the largest;
    and of one with a size that it knows."""

    device: str
    setting: str
    new: float
    largest: float
    known: float
    sizes: int

    @property
    def calls_an_hour(self) -> float:
        """Calls of the network in an hour where each has a new size."""
        return _HOUR / self.new

    @property
    def lost_minutes(self) -> float:
        """Minutes of an hour that go into new sizes, where one call of ``CALLS`` has one."""
        extra = max(0.0, self.new - self.known)
        return 60 * extra / (extra + CALLS * self.known)


def new_sizes(results: Results) -> list[NewSizes]:
    """Every setting that was measured, in the order of the outcomes."""
    return [found for outcome in results.outcomes if (found := _new_sizes(outcome))]


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


def quickest(results: Results, dtype: str, than: Optional[str]) -> Optional[tuple[NewSizes, NewSizes]]:
    """Of the settings whose forward convolutions are right, the one under which a new size costs the least,
    and the setting ``than``; None where that is as good, or was not measured."""
    found = {each.setting: each for each in new_sizes(results) if each.device == device_of(results)}
    right = [
        found[setting.name]
        for setting in results.settings
        if setting.name in found
        and setting.verdict != "cpu"
        and sound(assess(results, setting, dtype, "inference"))
        and assess(results, setting, dtype, "inference").right
    ]
    own = found.get(than or "")
    best = min(right, key=lambda each: each.new, default=None)
    if own is None or best is None or best.new > MUCH_LESS * own.new or own.new - best.new < AT_LEAST:
        return None
    return best, own


def slow_new_sizes(results: Results) -> Iterator[Finding]:
    """A new size takes long under ``default``, and under another setting that is right far less."""
    default = next((each for each in new_sizes(results) if each.setting == "default"), None)
    better = quickest(results, "float32", "default")
    if default is None or default.new <= SLOW_NEW_SIZE or better is None:
        return
    best, name = better[0], library(results)
    yield Finding(
        "changing-sizes",
        "warning" if default.new > VERY_SLOW_NEW_SIZE else "info",
        "cold-compile-slow",
        search_layer(results),
        f"Each new input size costs {default.new:.3g} s with {name}'s defaults, and {best.new:.2g} s with "
        f"{best.setting}",
        tuple(described(each) for each in (default, best)),
        f"A program whose sizes keep changing is better off with {best.setting}; for one that keeps to a few "
        "sizes, which it pays for once, see the other recommendations. Fewer sizes help under any setting: "
        "pad to multiples of 32 or more.",
    )


def described(each: NewSizes) -> str:
    return (
        f"{each.setting}: {each.new:.3g} s for a call with a new size (mean of {each.sizes}, at most "
        f"{each.largest:.3g} s), {each.known:.3g} s with a known one; with a new size in every {CALLS} "
        f"calls, {each.lost_minutes:.0f} minutes of an hour go into new sizes"
    )
