"""Options of a run, and the time limits of each level."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Optional

from rocmprobe.checks.tools.case import Case
from rocmprobe.model.problems import LEVELS
from rocmprobe.model.schema import Rule
from rocmprobe.model.shapes import Shapes


@dataclass(frozen=True)
class RunOptions:
    """Options of ``rocmprobe run``.

    ``shapes`` has the recorded convolutions of a program. If set, ``problems`` names the same convolutions.
    ``minutes`` is the duration of a soak, or 0 for the default. ``stop_at`` is the temperature in degrees
    Celsius that ends a soak, or 0 for the limit of the device.
    """

    device: str = "auto"
    level: Annotated[str, Rule("enum", LEVELS)] = "quick"
    purpose: Annotated[str, Rule("enum", ("training", "inference"))] = "training"
    settings: str = "default"
    problems: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    simulate: Optional[str] = None
    redact: bool = True
    note: str = ""
    shapes: Optional[Shapes] = None
    minutes: float = 0
    stop_at: float = 0

    def selects(self, case: Case) -> bool:
        """Return True if the check names and id patterns in ``only`` and ``skip`` select ``case``."""

        def matches(patterns: tuple[str, ...]) -> bool:
            return any(case.check == pattern or fnmatchcase(case.id, pattern) for pattern in patterns)

        if self.only and not matches(self.only):
            return False
        return not matches(self.skip)


@dataclass(frozen=True)
class WrittenTarget:
    """A tested device in ``results.json``."""

    device: str
    backend: str
    gpu: Optional[str] = None
    in_processor: bool = False


@dataclass(frozen=True)
class WrittenOptions(RunOptions):
    """The options in ``results.json``, with folder and devices of the run."""

    folder: str = "."
    targets: tuple[WrittenTarget, ...] = ()


@dataclass(frozen=True)
class Budgets:
    """Limits of a run. Times are in seconds.

    Time without an event from a child process:

    - ``start``: while importing torch
    - ``first_call``: while the first call searches solvers and compiles kernels
    - ``steady``: in all other phases
    - ``teardown``: at the end of the child

    Other limits:

    - ``server``: start of the fork server (None: same as ``start``)
    - ``measure``: duration of a throughput measurement
    - ``starts``: duration of repeated cold and warm starts
    - ``soak``: duration of a soak
    - ``hangs``, ``crashes``: after so many hangs or crashes under a setting, its other cases are blocked
    - ``tries``: if 1, no new process is started to retry a failed case or to test the device
    """

    start: float
    first_call: float
    steady: float
    teardown: float
    measure: float
    server: Optional[float] = None
    hangs: float = 3
    crashes: float = 20
    starts: float = 10
    tries: float = 3
    soak: float = 120

    def of(self, phase: str) -> float:
        return {"first-call": self.first_call, "start": self.start}.get(phase, self.steady)


BUDGETS = {
    "quick": Budgets(start=120, first_call=180, steady=60, teardown=30, measure=0.5, hangs=2),
    "standard": Budgets(start=120, first_call=300, steady=120, teardown=30, measure=2.0, starts=20),
    "long": Budgets(start=120, first_call=600, steady=300, teardown=60, measure=5.0, starts=60),
}
