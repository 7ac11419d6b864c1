"""Options of a run, written into the journal, so that ``--resume`` uses the same; and how much time its level
gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Optional

from rocmprobe.checks.tools.case import Case
from rocmprobe.model.problems import LEVELS
from rocmprobe.model.schema import Rule
from rocmprobe.model.shapes import Shapes


@dataclass(frozen=True)
class RunOptions:
    """Options of ``rocmprobe run`` that decide what is tested. Where ``shapes`` are given,
    ``problems`` are theirs. ``estimate`` is a workload in words, or empty; ``note`` is for the readers of the
    report."""

    device: str = "auto"
    level: Annotated[str, Rule("enum", LEVELS)] = "quick"
    purpose: Annotated[str, Rule("enum", ("training", "inference"))] = "training"
    settings: str = "default"
    problems: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    simulate: Optional[str] = None
    redact: bool = True
    driver: Annotated[str, Rule("enum", ("auto", "torch", "capi"))] = "auto"
    libraries: str = ""
    estimate: str = ""
    note: str = ""
    shapes: Optional[Shapes] = None

    def selects(self, case: Case) -> bool:
        """Whether ``--only`` and ``--skip`` (check names, or patterns over case ids) leave the case in.

        What a selected case depends on runs only if it is selected, too.
        """

        def matches(patterns: tuple[str, ...]) -> bool:
            return any(case.check == pattern or fnmatchcase(case.id, pattern) for pattern in patterns)

        if self.only and not matches(self.only):
            return False
        return not matches(self.skip)


@dataclass(frozen=True)
class WrittenTarget:
    """A tested device in ``results.json``. ``libraries`` are the files that ``capi`` loads."""

    device: str
    backend: str
    gpu: Optional[str] = None
    in_processor: bool = False
    drivers: list[str] = field(default_factory=list)
    libraries: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WrittenOptions(RunOptions):
    """The options in ``results.json``: also the folder of the run and the devices that it tested."""

    folder: str = "."
    targets: tuple[WrittenTarget, ...] = ()


@dataclass(frozen=True)
class Budgets:
    """How long a child may be silent, by phase, and how long a measurement takes.

    Seconds. ``start`` covers the import of torch; ``first_call`` search and compilation; ``steady``
    repeated calls and references; ``measure`` is for the rounds of one throughput question; ``server`` is for
    the fork server's start, None for as much as ``start``.

    ``hangs`` and ``crashes`` are how many questions may end so under one setting: after that many nothing
    new is learned from the next, which is blocked. A crash costs a second or two, a hang its whole budget.
    ``starts`` is for how long cold and warm starts are repeated; ``sweep_mb`` how many MiB the search for
    the largest batch may fill on a CPU. ``tries`` is how often at most a case is put to a child; with one
    try, nobody asks afterwards whether the device still answers."""

    start: float
    first_call: float
    steady: float
    teardown: float
    measure: float
    server: Optional[float] = None
    hangs: float = 3
    crashes: float = 20
    starts: float = 10
    sweep_mb: float = 64
    tries: float = 3

    def of(self, phase: str) -> float:
        return {"first-call": self.first_call, "start": self.start}.get(phase, self.steady)


#: By level.
BUDGETS = {
    "quick": Budgets(start=120, first_call=180, steady=60, teardown=30, measure=0.5, hangs=2),
    "standard": Budgets(
        start=120, first_call=300, steady=120, teardown=30, measure=2.0, starts=20, sweep_mb=256
    ),
    "long": Budgets(
        start=120, first_call=600, steady=300, teardown=60, measure=5.0, starts=60, sweep_mb=1024
    ),
}
