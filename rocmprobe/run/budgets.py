"""How long a child may be silent, by phase, and how long a measurement takes, by level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Budgets:
    """Seconds. ``start`` covers the import of torch; ``first_call`` search and compilation; ``steady``
    repeated calls and references; ``measure`` is for the rounds of one throughput question; ``server`` is for
    the fork server's start, None for as much as ``start``.

    ``hangs`` and ``crashes`` are how many questions may end so under one setting: after that many nothing
    new is learned from the next, which is blocked. A crash costs a second or two, a hang its whole budget.
    ``starts`` is for how long cold and warm starts are repeated; ``sweep_mb`` how many MiB the search for
    the largest batch may fill on a CPU."""

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

    def of(self, phase: str) -> float:
        return {"first-call": self.first_call, "start": self.start}.get(phase, self.steady)


BUDGETS = {
    "quick": Budgets(start=120, first_call=180, steady=60, teardown=30, measure=0.5, hangs=2),
    "standard": Budgets(
        start=120, first_call=300, steady=120, teardown=30, measure=2.0, starts=20, sweep_mb=256
    ),
    "long": Budgets(
        start=120, first_call=600, steady=300, teardown=60, measure=5.0, starts=60, sweep_mb=1024
    ),
}
