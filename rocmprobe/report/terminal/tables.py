"""Data tables as terminal tables, for ``rocmprobe list``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Union

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rocmprobe.checks import CHECKS
from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.causes import causes
from rocmprobe.knowledge.solvers import solvers
from rocmprobe.knowledge.variables import KINDS, Variable, variables
from rocmprobe.model.problem_matrix import entries
from rocmprobe.model.problems import LEVELS, PURPOSES, problems
from rocmprobe.report.terminal import settings_table
from rocmprobe.simulate.machines import load_machine, machine_names


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*row)
    return table


def _settings() -> Table:
    # Use one column with the name on a separate line, because the variables of a setting can fill a line.
    table = Table("setting", box=None, pad_edge=False, header_style="bold")
    for row in settings_table.rows():
        details = (
            f"{row.libraries}; set {row.chosen}; {row.where}",
            *row.sets,
            f"why: {row.why}",
            f"cost: {row.cost}",
        )
        table.add_row(
            Group(
                Text(f"{row.name}: {row.title}", overflow="fold"),
                Padding(Text("\n".join(details), overflow="fold"), (0, 0, 0, 2)),
            )
        )
    for way, versions, flags in settings_table.search_rows():
        table.add_row(Text(f"{way}, {versions}: {flags}", overflow="fold"))
    table.add_row()
    for rung, names in settings_table.cure_rows():
        table.add_row(Text(f"cures of the rung {rung}, smallest change first: {names}", overflow="fold"))
    return table


def _problems() -> Group:
    rows = []
    for purpose in PURPOSES:
        seen: set[str] = set()
        for level in LEVELS:
            texts = [problem.text for problem in problems(level, purpose)]
            rows += [(purpose, level, text) for text in texts if text not in seen]
            seen |= set(texts)
    return Group(_table(("purpose", "from level", "problem"), rows), Text(), _matrix())


def _matrix() -> Table:
    """Return the problems of the check "problem-matrix" with their origins.

    Problems of the level "long" are only counted.
    """
    table = Table("from level", "problem of the matrix", box=None, pad_edge=False, header_style="bold")
    seen = 0
    for level in LEVELS[:-1]:
        for entry in entries(level)[seen:]:
            table.add_row(
                level,
                Group(
                    Text(entry.problem.text, overflow="fold"),
                    Padding(Text(entry.origin, "dim"), (0, 0, 0, 2)),
                ),
            )
        seen = len(entries(level))
    counts = Counter(entry.variant or entry.network for entry in entries("long")[seen:])
    table.add_row("long", ", ".join(f"{count} more of {name}" for name, count in counts.items()))
    return table


def _checks() -> Table:
    return _table(
        ("check", "rung", "question"), ((name, check.rung, check.question) for name, check in CHECKS.items())
    )


def _machines() -> Table:
    return _table(("machine", "what it is"), ((name, load_machine(name).summary) for name in machine_names()))


def _solvers() -> Table:
    # Use one column, because the variables that switch a solver off have long names.
    table = Table("solver", box=None, pad_edge=False, header_style="bold")
    for solver in solvers():
        words = (solver.family, ", ".join(solver.directions), ", ".join(solver.dtypes))
        off = "\n".join(f"{name}=0" for name in solver.off)
        table.add_row(
            Group(
                Text(solver.name, overflow="fold"),
                Padding(Text("; ".join(words)), (0, 0, 0, 2)),
                Padding(Text(off, "dim", overflow="fold"), (0, 0, 0, 2)),
            )
        )
    return table


def _causes() -> Table:
    # Use one column with the name on a separate line, because the test of a cause is a whole sentence.
    table = Table("cause", box=None, pad_edge=False, header_style="bold")
    for row in causes():
        details = f"{row.layer}: {row.title}\n{row.sentence}\n{row.confirm}"
        table.add_row(
            Group(
                Text(row.name, overflow="fold"),
                Padding(Text(details, overflow="fold"), (0, 0, 0, 2)),
                Padding(Text(row.links[0], "dim", overflow="fold"), (0, 0, 0, 2)),
            )
        )
    return table


def _gpus() -> Table:
    rows = (
        (
            target.gfx,
            f"{target.family}, {target.chip}, wave {target.wave}",
            target.rocm or "never",
            (target.wheels or "never") + ("; in AMD's own index" if target.amd_wheels else ""),
            ", ".join(sorted({name.removeprefix("AMD ") for name in target.names.values()})),
        )
        for target in gpus.all_targets()
    )
    return _table(("target", "chip", "official in ROCm", "PyTorch's own wheels", "products"), rows)


def _variables() -> Table:
    # Use one column with the name on a separate line, because names have up to 84 letters.
    table = Table("variable", box=None, pad_edge=False, header_style="bold")
    for row in variables():
        details = "\n".join(filter(None, (_when(row), row.effect)))
        table.add_row(
            Group(
                Text(row.name, overflow="fold"),
                Padding(Text(details), (0, 0, 0, 2)),
                Padding(Text(row.source, "dim", overflow="fold"), (0, 0, 0, 2)),
            )
        )
    return table


def _when(row: Variable) -> str:
    if row.of == "nobody":
        return "not read by any library"
    words = [f"{each.word} {'' if each.number is None else each.number}".strip() for each in row.choices]
    return "; ".join(
        (
            ", ".join(words) or KINDS[row.values],
            f"default {row.default}" if row.default else "no default",
            f"{row.of}, {_versions(row)}",
            f"read at {row.read}{', once per process' if row.once else ''}",
        )
    )


def _versions(row: Variable) -> str:
    product = "torch" if row.of == "torch" else "ROCm"
    if row.since or row.until:
        return f"{product} {row.since or 'of any age'} to {row.until or 'now'}"
    return "any version"


TABLES: dict[str, Callable[[], Union[Table, Group]]] = {
    "settings": _settings, "solvers": _solvers, "problems": _problems, "checks": _checks,
    "machines": _machines, "gpus": _gpus, "causes": _causes, "variables": _variables,
}  # fmt: skip
