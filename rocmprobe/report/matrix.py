"""Tables of results: settings against problems and layers, and single solvers against problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.failures import counts, counts_sentence, reason, worst
from rocmprobe.judge.findings.sweep import of_sweep, solver_class
from rocmprobe.judge.findings.sweep import summary as sweep_summary
from rocmprobe.knowledge.settings import title
from rocmprobe.knowledge.solvers import solver_of
from rocmprobe.model.results import DIRECTIONS, RUNGS, Outcome, Results
from rocmprobe.model.states import State
from rocmprobe.report.anchors import anchors
from rocmprobe.report.codes import short_codes
from rocmprobe.text import readable as text

_WORDY_COLUMNS = 7


@dataclass(frozen=True)
class Column:
    """A setting: name, short code for a narrow screen, and the reason for the setting."""

    label: str
    code: str
    reason: str


@dataclass(frozen=True)
class Cell:
    look: State
    hint: str
    anchor: str


@dataclass(frozen=True)
class Group:
    """A problem with a row for each direction, or a check with a row for each dtype or problem.

    Each row has one cell per column. A cell is None if there is no outcome.
    """

    name: str
    rows: tuple[tuple[str, tuple[Optional[Cell], ...]], ...]


@dataclass(frozen=True)
class Matrix:
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    summary: str

    @property
    def compact(self) -> bool:
        """True if there are so many columns that cells can only show symbols."""
        return len(self.columns) > _WORDY_COLUMNS


def build(results: Results, device: str, check: str) -> Optional[Matrix]:
    """Return a matrix with settings as columns, and the problems and directions of ``check`` as rows."""
    mine = [o for o in results.outcomes if o.device == device and o.check == check]
    return _matrix(results, mine, "problem", lambda o: (o.problem or o.id, o.direction or ""))


_LAYER_RUNGS = tuple(rung for rung in RUNGS if rung not in ("conv", "train"))


def layers(results: Results, device: str) -> Optional[Matrix]:
    """Return a matrix with settings as columns, and the checks other than convolution and training as
    rows.
    """
    mine = [o for o in results.outcomes if o.device == device and o.rung in _LAYER_RUNGS]
    return _matrix(results, mine, "check", lambda o: (o.check, _row(o)))


def _row(outcome: Outcome) -> str:
    return f"{outcome.problem} {outcome.direction or ''}".strip() if outcome.problem else outcome.dtype


def _matrix(
    results: Results, mine: list[Outcome], what: str, place: Callable[[Outcome], tuple[str, str]]
) -> Optional[Matrix]:
    """Build a matrix. ``place`` returns the group and the row of an outcome."""
    if not mine:
        return None
    order = {setting.name: position for position, setting in enumerate(results.settings)}
    reasons = {each.name: f"{title(each.name)}: {each.reason}" for each in results.settings}
    chosen = results.recommendation.configuration.setting if results.recommendation else None
    # Put the default and the recommended setting first, so that even a narrow screen shows both.
    order.update({name: place for place, name in ((-2, "default"), (-1, chosen)) if name in order})
    columns = sorted({each.setting for each in mine}, key=lambda name: (order.get(name, len(order)), name))
    cells: dict[tuple[str, str, str], list[Outcome]] = defaultdict(list)
    groups: dict[str, dict[str, None]] = {}
    for outcome in mine:
        group, row = place(outcome)
        groups.setdefault(group, {})[row] = None
        cells[group, row, outcome.setting].append(outcome)
    own = anchors(results)

    def cell(group: str, row: str, column: str) -> Optional[Cell]:
        found = cells.get((group, row, column))
        if not found:
            return None
        culprit = worst(found)
        look = culprit.meaning
        good = look.tone == "good"
        hint = "" if good else text.one_line(f"{culprit.state}: {reason(culprit) or look.meaning}", 160)
        return Cell(look, hint, own[id(culprit)])

    tabled = tuple(
        Group(
            group,
            tuple(
                (row, tuple(cell(group, row, column) for column in columns))
                for row in sorted(rows, key=_direction_order)
            ),
        )
        for group, rows in groups.items()
    )
    codes = short_codes(columns)
    questions, settings = text.count(len(groups), what), text.count(len(columns), "setting")
    summary = f"{questions} under {settings}: {counts_sentence(counts(mine))}."
    named = tuple(Column(name, codes[name], reasons.get(name, "")) for name in columns)
    return Matrix(named, tabled, summary)


def _direction_order(direction: str) -> int:
    return DIRECTIONS.index(direction) if direction in DIRECTIONS else len(DIRECTIONS)


#: Kinds of results without information. A solver that has only such results gets no row.
_SILENT = ("does not apply", "skipped", "blocked")


@dataclass(frozen=True)
class SolverRow:
    """Results of one solver: (word, cell) for each problem and direction, or None for a missing outcome."""

    solver: str
    cells: tuple[Optional[tuple[str, Cell]], ...]


@dataclass(frozen=True)
class Sweep:
    """Results of solvers that ran one at a time.

    ``questions`` are pairs of problem and direction. ``silent`` are the solvers without a row, each with the
    reason.
    """

    summary: str
    questions: tuple[tuple[str, str], ...]
    rows: tuple[SolverRow, ...]
    silent: tuple[tuple[str, str], ...]


def solver_matrix(results: Results) -> Optional[Sweep]:
    """Return a table with solvers as rows and problems as columns, or None without a solver sweep."""
    outcomes = of_sweep(results)
    if not outcomes:
        return None
    telling = [outcome for outcome in outcomes if solver_class(outcome) not in _SILENT]
    questions = tuple(
        sorted(
            {(outcome.problem or "", outcome.direction or "") for outcome in telling},
            key=lambda question: (question[0], _direction_order(question[1])),
        )
    )
    names = dict.fromkeys(str(solver_of(outcome)) for outcome in telling)
    rows = tuple(SolverRow(name, _solver_cells(results, outcomes, name, questions)) for name in names)
    silent: dict[str, list[str]] = {}
    for name in dict.fromkeys(str(solver_of(outcome)) for outcome in outcomes):
        if name not in names:
            said = next(reason(outcome) for outcome in outcomes if solver_of(outcome) == name)
            silent.setdefault(text.one_line(said.replace(name, "it")), []).append(name)
    quiet = tuple((", ".join(each), why) for why, each in silent.items())
    return Sweep(sweep_summary(results) or "No solver was run alone", questions, rows, quiet)


def _solver_cells(
    results: Results, outcomes: Sequence[Outcome], name: str, questions: Sequence[tuple[str, str]]
) -> tuple[Optional[tuple[str, Cell]], ...]:
    mine = {(each.problem, each.direction): each for each in outcomes if solver_of(each) == name}
    own = anchors(results)
    cells: list[Optional[tuple[str, Cell]]] = []
    for question in questions:
        outcome = mine.get(question)
        if outcome is None:
            cells.append(None)
            continue
        word = solver_class(outcome)
        hint = text.one_line(f"{word}: {reason(outcome)}" if reason(outcome) else word, 160)
        cells.append((word, Cell(outcome.meaning, hint, own[id(outcome)])))
    return tuple(cells)
