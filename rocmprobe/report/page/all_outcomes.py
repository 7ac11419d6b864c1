"""Table of all outcomes, and their number for each pytest result."""

from __future__ import annotations

from dataclasses import dataclass

from rocmprobe.judge.failures import counts_sentence
from rocmprobe.judge.summary import Summary
from rocmprobe.report.identity import run_seconds
from rocmprobe.report.junit import Reported, reported
from rocmprobe.report.page.layout import Fit
from rocmprobe.text import readable as text

#: pytest's results in the order of the rows, with colour tone and word.
_RESULTS = {
    "error": ("bad", "Error"),
    "failed": ("bad", "Failed"),
    "xfailed": ("slow", "XFailed"),
    "xpassed": ("bad", "XPassed"),
    "skipped": ("slow", "Skipped"),
    "passed": ("good", "Passed"),
}


@dataclass(frozen=True)
class Result:
    """A result of pytest (e.g. "passed") that occurs, and the number of outcomes in words."""

    tone: str
    word: str
    count: str


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


def all_outcomes(summary: Summary, fit: Fit) -> AllOutcomes:
    """Return one row for each outcome, sorted by result."""
    results, cases = summary.results, reported(summary.results)
    sentences = {count.result: count.sentence for count in summary.counts}
    found = {name: Result(*words, sentences[name]) for name, words in _RESULTS.items() if name in sentences}
    order = tuple(_RESULTS)
    shown = sorted(cases[: fit.rows], key=lambda case: order.index(case.outcome))
    return AllOutcomes(
        f"{counts_sentence(summary.counts)}; the run took {text.seconds(run_seconds(results))}.",
        tuple(found.values()),
        tuple(Row(found[case.outcome], case, text.seconds(case.seconds)) for case in shown),
    )
