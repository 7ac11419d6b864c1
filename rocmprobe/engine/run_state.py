"""State of a run, which the records of its journal update."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from rocmprobe.checks.tools.case import Case
from rocmprobe.knowledge.solvers import DerivedSetting
from rocmprobe.model.baseline import Baseline
from rocmprobe.model.results import Outcome, Trial


@dataclass
class Running:
    """A case that runs since ``begun``.

    ``phase`` is the phase in which the case waits. The wait began at ``since``, a monotonic time. ``limit``
    is its timeout in seconds, or 0. ``needs_device`` is True while another run uses the device. ``compiles``
    is True while kernels are compiled.
    """

    case: Case
    begun: float
    phase: str = ""
    since: float = field(default_factory=time.monotonic, compare=False)
    limit: float = 0.0
    needs_device: bool = False
    compiles: bool = False

    def wait(self, phase: str, left: Optional[float], compiles: bool) -> None:
        """Begin or end a wait, as the record ``Waiting`` says."""
        self.phase, self.since, self.limit = phase, time.monotonic(), left or 0.0
        self.needs_device, self.compiles = left is None, compiles
        if phase == "device":
            # Do not count the wait for a device as time of the case.
            self.begun = time.time()


@dataclass
class RunState:
    """The state of a run according to its journal.

    ``questions`` are the started cases, keyed by id. ``seconds`` are the durations of finished cases.
    ``derived`` is keyed by device and setting. ``current`` are the cases planned since the run began or was
    last resumed. ``answer`` is the recommendation after the ladder. ``identity`` is that of the machine
    (:func:`rocmprobe.model.baseline.identity`), and ``changed`` says how the identity changed on resumption.
    """

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    questions: dict[str, Case] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    wedged: set[str] = field(default_factory=set)
    derived: dict[tuple[str, str], DerivedSetting] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    planned: set[str] = field(default_factory=set)
    current: set[str] = field(default_factory=set)
    baseline: Optional[Baseline] = None
    finished: Optional[str] = None
    boot: str = ""
    identity: Mapping[str, str] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    answer: str = ""

    def start(self, case: Case, at: float) -> None:
        """Add a case that starts at ``at``."""
        # The case that started last is the last one.
        self.questions.pop(case.id, None)
        self.questions[case.id] = case
        self.running[case.id] = Running(case, at)

    def changes(self, identity: Mapping[str, str]) -> tuple[str, ...]:
        """Return how ``identity`` differs from the machine so far, e.g. "kernel 6.8 → 6.9"."""
        return tuple(
            f"{name} {self.identity.get(name) or 'unknown'} → {value or 'unknown'}"
            for name, value in identity.items()
            if value != self.identity.get(name)
        )

    def settle(self, outcome: Outcome, at: float) -> None:
        """Add an outcome that arrives at ``at``."""
        self.outcomes[outcome.id] = outcome
        running = self.running.pop(outcome.id, None)
        if running:
            self.seconds[outcome.id] = at - running.begun
