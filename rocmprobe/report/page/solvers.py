"""The solvers that ran one at a time, against their problems and directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.findings.sweep import of_sweep, solver_class, summary
from rocmprobe.knowledge.solvers import solver_of
from rocmprobe.model.results import DIRECTIONS, Outcome, Results
from rocmprobe.report import text
from rocmprobe.report.page.matrix import Cell, anchor
from rocmprobe.report.states import LOOKS, reason

#: What says nothing of a solver; one that has nothing else gets no row.
_SILENT = ("does not apply", "skipped", "blocked")


@dataclass(frozen=True)
class Row:
    """One solver: for each question the word for its result and the cell, or None where it did not run."""

    solver: str
    cells: tuple[Optional[tuple[str, Cell]], ...]


@dataclass(frozen=True)
class Sweep:
    """``questions`` are problem and direction; ``silent`` the solvers without a row, with the reason."""

    summary: str
    questions: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    silent: tuple[tuple[str, str], ...]


def build(results: Results) -> Optional[Sweep]:
    """The table, or None where no solver was selected."""
    outcomes = of_sweep(results)
    if not outcomes:
        return None
    telling = [outcome for outcome in outcomes if solver_class(outcome) not in _SILENT]
    questions = tuple(
        sorted(
            {(outcome.problem or "", outcome.direction or "") for outcome in telling},
            key=lambda question: (question[0], _place(question[1])),
        )
    )
    names = dict.fromkeys(str(solver_of(outcome)) for outcome in telling)
    rows = tuple(Row(name, _cells(results, outcomes, name, questions)) for name in names)
    silent: dict[str, list[str]] = {}
    for name in dict.fromkeys(str(solver_of(outcome)) for outcome in outcomes):
        if name not in names:
            said = next(reason(outcome) for outcome in outcomes if solver_of(outcome) == name)
            silent.setdefault(text.one_line(said.replace(name, "it")), []).append(name)
    quiet = tuple((", ".join(each), why) for why, each in silent.items())
    return Sweep(summary(results) or "No solver was run alone", questions, rows, quiet)


def _place(direction: str) -> int:
    return DIRECTIONS.index(direction) if direction in DIRECTIONS else len(DIRECTIONS)


def _cells(
    results: Results, outcomes: Sequence[Outcome], name: str, questions: Sequence[tuple[str, str]]
) -> tuple[Optional[tuple[str, Cell]], ...]:
    mine = {(each.problem, each.direction): each for each in outcomes if solver_of(each) == name}
    cells: list[Optional[tuple[str, Cell]]] = []
    for question in questions:
        outcome = mine.get(question)
        if outcome is None:
            cells.append(None)
            continue
        word = solver_class(outcome)
        hint = text.one_line(f"{word}: {reason(outcome)}" if reason(outcome) else word, 160)
        cells.append((word, Cell(LOOKS[outcome.state], hint, anchor(results, outcome))))
    return tuple(cells)
