"""HTML anchors and durations of outcomes."""

from __future__ import annotations

from rocmprobe.model.results import Outcome, Results
from rocmprobe.text import readable as text


def anchor(position: int) -> str:
    """Return the HTML anchor for the outcome at ``position``."""
    # Do not use the outcome's id, which comes from a file and can be any text.
    return f"o{position}"


def anchors(results: Results) -> dict[int, str]:
    """Return the HTML anchor of each outcome. The keys are ``id(outcome)``."""
    return {id(outcome): anchor(position) for position, outcome in enumerate(results.outcomes)}


def took(outcome: Outcome) -> float:
    """Return the total seconds of all attempts."""
    return sum(text.numeric(attempt.seconds) or 0 for attempt in outcome.attempts)
