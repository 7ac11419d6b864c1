"""Each outcome as a test case: what pytest-html's table and JUnit show of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rocmprobe.model.results import Outcome, Results
from rocmprobe.report import text
from rocmprobe.report.page import evidence
from rocmprobe.report.page.size import clipped
from rocmprobe.report.states import LOOKS, reason

#: Characters of evidence in JUnit, whose readers load all of it.
_TEXT = 20_000


@dataclass(frozen=True)
class Reported:
    """One outcome, with no text that could harm a terminal, HTML or XML beyond escaping.

    ``name`` is unique among the outcomes of a run; ``outcome`` is what pytest would call it, in lower case;
    ``seconds`` is finite and not negative.
    """

    name: str
    group: str
    state: str
    outcome: str
    text: str
    anchor: str
    reason: str
    seconds: float
    properties: Mapping[str, str]


def reported(results: Results) -> tuple[Reported, ...]:
    """The outcomes of a run, in their order."""
    found = []
    seen: dict[str, int] = {}
    for position, outcome in enumerate(results.outcomes):
        name = text.one_line(outcome.id, 300) or "outcome"
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            # Readers of JUnit key by name and would merge the two.
            name = f"{name} #{seen[name]}"
        look = LOOKS[outcome.state]
        found.append(
            Reported(
                name=name,
                group=text.one_line(f"{outcome.check}.{outcome.setting}", 100).replace("::", ":"),
                state=outcome.state,
                outcome=look.pytest,
                text=_text(outcome),
                anchor=evidence.anchor(position),
                reason=text.one_line(reason(outcome) or look.meaning),
                seconds=_seconds(evidence.took(outcome)),
                properties={
                    "state": outcome.state,
                    "setting": text.one_line(outcome.setting),
                    "device": text.one_line(outcome.device),
                    # JUnit has no word for a test that works and was expected to fail.
                    **({"expected": text.one_line(outcome.expected.reason)} if outcome.expected else {}),
                },
            )
        )
    return tuple(found)


def _text(outcome: Outcome) -> str:
    look = LOOKS[outcome.state]
    why = reason(outcome)
    if look.pytest == "passed":
        return ""
    if look.pytest == "skipped":
        return clipped(text.plain(f"{outcome.state}: {why or look.meaning}"), _TEXT)
    lines = [f"{outcome.state}: {why or look.meaning}", *outcome.evidence[1:]]
    known = outcome.expected
    if known:
        lines.insert(
            1, f"came to {known.state}; expected by {known.source}: {known.reason} {known.link}".rstrip()
        )
    for number, attempt in enumerate(outcome.attempts, 1):
        took = text.seconds(attempt.seconds)
        lines.append(f"attempt {number}: {attempt.state}, {took} {attempt.message}".rstrip())
    return clipped(text.plain("\n".join(lines)), _TEXT)


def _seconds(value: float) -> float:
    """No reader takes a time that is negative or no number."""
    return max(value, 0.0) if math.isfinite(value) else 0.0
