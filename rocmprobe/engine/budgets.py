"""Time limits of each level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Limits:
    """Numbers of seconds without an event after which a worker hangs in one phase.

    - ``stall``: the GPU is busy all the time, or nothing is at work
    - ``blind``: nothing shows whether the GPU is busy, and the worker does not compile
    - ``most``: in all other cases
    - ``computing``: nothing shows whether the GPU is busy, and more threads are busy than wait for a GPU
    - ``cpu_computes``: True if a busy CPU is a sign of work, not of a wait for the GPU
    """

    stall: float
    blind: float
    most: float
    computing: float = 0.0
    cpu_computes: bool = False


@dataclass(frozen=True)
class Budgets:
    """Limits of a run. Times are in seconds.

    Time without an event from a child process:

    - ``start``: while importing torch
    - ``first_call``: while the first call searches solvers and compiles kernels
    - ``steady``: in all other phases
    - ``teardown``: at the end of the child
    - ``stall``, ``blind``: as in ``Limits``, if a worker computes

    Other limits:

    - ``server``: start of the fork server (None: same as ``start``)
    - ``measure``: duration of a throughput measurement
    - ``starts``: duration of repeated cold and warm starts
    - ``soak``: duration of the check soak
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
    stall: float = 20
    blind: float = math.inf

    def limits(self, phase: str) -> Limits:
        """Return the limits of a phase."""
        if phase == "start":
            return Limits(self.start, self.start, self.start)
        most = self.first_call if phase == "first-call" else self.steady
        return Limits(self.stall, self.blind, most, self.first_call, phase not in ("first-call", "steady"))


BUDGETS = {
    "quick": Budgets(start=120, first_call=180, steady=60, teardown=30, measure=0.5, hangs=2, blind=60),
    "standard": Budgets(start=120, first_call=300, steady=120, teardown=30, measure=2.0, starts=20, stall=40),
    "long": Budgets(start=120, first_call=600, steady=300, teardown=60, measure=5.0, starts=60, stall=60),
}


def within(seconds: float) -> Budgets:
    """Return limits of a check that ends within ``seconds``."""
    return Budgets(0.6 * seconds, 0.4 * seconds, 0.3 * seconds, teardown=0.5, measure=0.1, tries=1)
