"""Failed outcomes grouped by reason, and counts of outcomes in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rocmprobe.model.results import Outcome
from rocmprobe.model.states import STATES, State, rank
from rocmprobe.report import states, text

_DIGITS = re.compile(r"\d+")
_NAMED = 3


@dataclass(frozen=True)
class Failures:
    """Failed outcomes with the same state, check and reason."""

    state: State
    check: str
    reason: str
    count: int
    settings: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The group in one line: count, state, check, reason and settings."""
        names = ", ".join(self.settings[:_NAMED])
        if len(self.settings) > _NAMED:
            names = f"{len(self.settings)} settings: {names}, …"
        word = "known failure" if self.state.name == "xfail" else self.state.name
        times = f"{self.count} x {word}" if self.count > 1 else word
        return f"{times} in {self.check}: {text.one_line(self.reason or 'no reason given', 160)} ({names})"


def by_reason(outcomes: Iterable[Outcome]) -> list[Failures]:
    """Return the failures in groups, sorted by state (worst first), then by size (largest first)."""
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.fails or outcome.state == "probe-error":
            reason = _DIGITS.sub("#", states.reason(outcome))
            groups.setdefault((outcome.state, outcome.check, reason), []).append(outcome)
    found = [
        Failures(
            STATES[state], check, states.reason(same[0]), len(same),
            tuple(dict.fromkeys(outcome.setting for outcome in same)),
        )
        for (state, check, _), same in groups.items()
    ]  # fmt: skip
    return sorted(found, key=lambda each: (rank(each.state.name), -each.count))


#: States that are counted together, by the word for the count.
_COUNTED = {
    "passed": ("pass", "slow", "xpass"),
    "failed": ("wrong", "error", "crash", "hang", "flaky", "aborted"),
    "failed as known": ("xfail",),
    "not run": ("blocked", "skipped", "n/a"),
    "errors of rocmprobe": ("probe-error",),
}
#: States whose number is also shown in parentheses after the count, e.g. "82 passed (8 slow)".
_APART = {"slow": "slow", "xpass": "expected to fail", "flaky": "flaky"}


def counts(outcomes: Iterable[Outcome]) -> str:
    """Return how many outcomes passed, failed or did not run, e.g. "82 passed (8 slow), 3 not run"."""
    found = Counter("skipped" if _was_interrupted(outcome) else outcome.state for outcome in outcomes)
    parts = []
    for words, names in _COUNTED.items():
        amount = sum(found[name] for name in names)
        some = ", ".join(f"{found[name]} {_APART[name]}" for name in names if name in _APART and found[name])
        if amount:
            parts.append(f"{amount} {words}" + (f" ({some})" if some else ""))
    return ", ".join(parts) or "nothing was tested"


def _was_interrupted(outcome: Outcome) -> bool:
    """Return True for a case that was running when the user stopped the run."""
    return outcome.state == "aborted" and not outcome.fails
