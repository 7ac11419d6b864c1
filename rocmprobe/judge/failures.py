"""Failed outcomes grouped by reason, and counts of outcomes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rocmprobe.knowledge.settings import title
from rocmprobe.model.results import Outcome
from rocmprobe.model.states import State, rank
from rocmprobe.text.plain_text import one_line

#: Numbers differ between problems that fail for the same reason.
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_NAMED = 3
#: Results of pytest with the word for their number, in the order of the table of counts.
_COUNTED = {
    "passed": "passed", "xpassed": "passed, expected to fail", "failed": "failed",
    "xfailed": "failed as known", "skipped": "not run", "error": "errors of rocmprobe",
}  # fmt: skip
#: States whose number is also shown in parentheses, e.g. "82 passed (8 slow)".
_NOTED = ("slow", "crash", "hang", "wrong", "flaky", "aborted")


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    return min(outcomes, key=lambda outcome: rank(outcome.state, outcome.failure))


def reason(outcome: Outcome) -> str:
    """Return the line that explains an outcome's state, or ""."""
    if outcome.state == "xpass" and outcome.expected:
        return f"{outcome.expected.state}, expected to fail: {outcome.expected.reason}"
    messages = (attempt.message for attempt in outcome.attempts)
    return next(filter(None, (*outcome.evidence[:1], *messages)), outcome.failure or "")


@dataclass(frozen=True)
class Failures:
    """Failed outcomes with the same state, check and reason."""

    outcomes: tuple[Outcome, ...]

    @property
    def state(self) -> State:
        return self.outcomes[0].meaning

    @property
    def heading(self) -> str:
        """State, check, reason and settings in one line."""
        first = self.outcomes[0]
        settings = list(dict.fromkeys(outcome.setting for outcome in self.outcomes))
        names = ", ".join(map(title, settings[:_NAMED]))
        if len(settings) > _NAMED:
            names = f"{len(settings)} settings: {names}, …"
        word = "known failure" if first.state == "xfail" else first.state
        return f"{word} in {first.check}: {one_line(reason(first) or 'no reason given', 160)} ({names})"

    @property
    def sentence(self) -> str:
        """The heading, preceded by the number of outcomes if there are several."""
        number = len(self.outcomes)
        return f"{number} x {self.heading}" if number > 1 else self.heading


def by_reason(outcomes: Iterable[Outcome]) -> tuple[Failures, ...]:
    """Return ``outcomes`` in groups, sorted by state (worst first), then by size (largest first)."""
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        key = outcome.state, outcome.check, _NUMBER.sub("#", reason(outcome))
        groups.setdefault(key, []).append(outcome)
    found = [Failures(tuple(same)) for same in groups.values()]
    return tuple(sorted(found, key=lambda each: (rank(each.state.name), -len(each.outcomes))))


@dataclass(frozen=True)
class Count:
    """A row of the table of counts.

    ``result`` is the result of pytest for these cases, or "" for cases that the run did not reach.
    """

    result: str
    number: int
    words: str
    note: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.number} {self.words}" + (f" ({self.note})" if self.note else "")


def counts(outcomes: Iterable[Outcome], not_reached: int = 0) -> tuple[Count, ...]:
    """Return the table of counts without empty rows. The numbers add up to the number of planned cases."""
    found = list(outcomes)
    results = Counter(outcome.meaning.pytest for outcome in found)
    states = Counter((outcome.meaning.pytest, outcome.state) for outcome in found)
    rows = [
        Count(result, results[result], words, ", ".join(
            f"{states[result, state]} {state}" for state in _NOTED if states[result, state]
        ))
        for result, words in _COUNTED.items()
    ]  # fmt: skip
    rows.append(Count("", not_reached, "not reached"))
    return tuple(row for row in rows if row.number)


def counts_sentence(rows: Iterable[Count]) -> str:
    """Return the table of counts in one line, e.g. "82 passed (8 slow), 3 not run"."""
    return ", ".join(row.sentence for row in rows) or "nothing was tested"
