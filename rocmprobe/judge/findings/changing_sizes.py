"""Slow calls with new input sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.assessment import convolutions_pass
from rocmprobe.judge.blame import search_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.first_calls import MUCH_LESS
from rocmprobe.judge.noise import time_of
from rocmprobe.knowledge.settings import title as title_of
from rocmprobe.model.results import Finding, Outcome

#: If a call with a new input size takes more seconds than the first number, there is a finding. If it takes
#: more than the second, the finding is a warning.
SLOW_NEW_SIZE, VERY_SLOW_NEW_SIZE = 1.0, 10.0
#: Another setting counts as faster for new sizes if its time is at most ``MUCH_LESS`` times as long, and at
#: least this many seconds shorter.
AT_LEAST = 0.1
#: The minutes per hour that new input sizes cost depend on how often the size changes. Reports assume that 1
#: of this many calls has a new size.
CALLS = 10


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
        return 3600 / self.new

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
    assessments = run.assessments(dtype, "inference")
    right = {each.setting.name for each in assessments if each.right and convolutions_pass(each)}
    on_device = {setting.name for setting in run.settings if setting.verdict != "cpu"}
    own = found.get(than or "")
    rivals = [each for name, each in found.items() if name in right & on_device]
    best = min(rivals, key=lambda each: each.new, default=None)
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
    title = (
        f"Each new input size costs {default.new:.3g} s with {name}'s defaults, and {best.new:.2g} s with "
        f"{title_of(best.setting)}"
    )
    evidence = tuple(described(each) for each in (default, best))
    advice = (
        f"If your input sizes keep changing, use the setting “{title_of(best.setting)}”. If your program "
        "uses only a few sizes, it pays once per size: see the other recommendations. Fewer "
        "sizes help under any setting: pad to multiples of 32 or more."
    )
    severity = "warning" if default.new > VERY_SLOW_NEW_SIZE else "info"
    yield Finding("changing-sizes", severity, "cold-compile-slow", search_layer(run), title, evidence, advice)


def described(each: NewSizes) -> str:
    return (
        f"{each.setting}: a call takes {each.known:.3g} s with a known size, and {each.new:.3g} s with a new "
        f"size (mean of {each.sizes} sizes, at most {each.largest:.3g} s). If 1 of {CALLS} calls has a new "
        f"size, new sizes cost {each.lost_minutes:.0f} minutes per hour"
    )
