"""Table of all outcomes, and their number for each pytest result."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rocmprobe.model.results import Results
from rocmprobe.report import text
from rocmprobe.report.identity import run_seconds
from rocmprobe.report.junit import Reported, reported
from rocmprobe.report.page.layout import Fit

#: pytest's results in the order of the rows: colour tone, word in a row, and plural for the count.
_RESULTS = {
    "error": ("bad", "Error", "Errors"),
    "failed": ("bad", "Failed", "Failed"),
    "xfailed": ("slow", "XFailed", "Expected failures"),
    "xpassed": ("bad", "XPassed", "Unexpected passes"),
    "skipped": ("slow", "Skipped", "Skipped"),
    "passed": ("good", "Passed", "Passed"),
}


@dataclass(frozen=True)
class Result:
    """A result of pytest (e.g. "passed"), and the number of outcomes with this result."""

    tone: str
    word: str
    count: str
    occurs: bool


@dataclass(frozen=True)
class Row:
    result: Result
    case: Reported
    took: str


@dataclass(frozen=True)
class AllOutcomes:
    summary: str
    results: tuple[Result, ...]
    rows: tuple[Row, ...]


def all_outcomes(results: Results, fit: Fit) -> AllOutcomes:
    """Return one row for each outcome, sorted by result."""
    cases = reported(results)
    counts = Counter(case.outcome for case in cases)
    found = {
        name: Result(tone, word, f"{counts[name]} {words}", counts[name] > 0)
        for name, (tone, word, words) in _RESULTS.items()
    }
    order = tuple(_RESULTS)
    shown = sorted(cases[: fit.rows], key=lambda case: order.index(case.outcome))
    return AllOutcomes(
        f"{text.count(len(cases), 'outcome')}, run took {text.seconds(run_seconds(results))}.",
        tuple(found.values()),
        tuple(Row(found[case.outcome], case, text.seconds(case.seconds)) for case in shown),
    )
