"""Warming of caches: run a program's convolutions in advance, so that their first calls are fast later.

Each direction of each problem runs in separate child processes, so a solver that hangs or crashes costs only
one direction.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from rocmprobe.checks.tools.case import Case
from rocmprobe.detect import detect
from rocmprobe.engine.interpreters import interpreters
from rocmprobe.engine.journal import BaseJournal, Journal, naming_journal
from rocmprobe.engine.launch import OWN, Launch, launch_of
from rocmprobe.engine.lease import locked
from rocmprobe.engine.options import BUDGETS, Budgets, RunOptions
from rocmprobe.engine.run import now
from rocmprobe.engine.session import Session, without_trial
from rocmprobe.engine.targets import Device, find_targets
from rocmprobe.exec.caches import VARIABLE, Caches
from rocmprobe.exec.choice import choose
from rocmprobe.exec.conditions import conditions
from rocmprobe.judge.assessment import device_of
from rocmprobe.judge.blame import library
from rocmprobe.judge.recommendation.configuration import isa_override
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import (
    DIRECTIONS,
    BadInput,
    Environment,
    Machine,
    NothingToTest,
    Outcome,
    Results,
    Setting,
)
from rocmprobe.model.shapes import Recorded
from rocmprobe.simulate.machines import SimulatedMachine, load_machine

#: Setting of the child that tests after a crash or a hang whether the device still responds.
_CANARY = Setting("default", "as PyTorch comes", "native")
_CHECK = "start-up"
_AGAIN = "rocmprobe or the machine ended during this call; --retry repeats it"


@dataclass(frozen=True)
class ConfiguredDevice:
    """A device, a configuration of ``rocmprobe exec``, and the caches of this configuration.

    ``path`` is the path of the results.
    """

    path: Path
    machine: Machine
    target: Device
    setting: Setting
    caches: Caches
    launch: Launch
    budgets: Budgets
    simulated: Optional[SimulatedMachine] = None

    def case(self, check: str, problem: str, direction: str) -> Case:
        """Return the case that runs ``check`` for a problem and direction on this device."""
        dtype = parse_problem(problem).dtype
        return Case(self.target.device, "torch", self.setting.name, check, dtype, problem, direction)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the caches during a ``with`` block. Raise BadInput if another process holds the lock."""
        with locked(self.caches.folder / "lock") as free:
            if not free:
                raise BadInput(f"{self.caches.folder}: another `rocmprobe warm` changes these caches; wait")
            yield

    @contextmanager
    def session(self, journal: BaseJournal, caches: Caches) -> Iterator[Session]:
        """Yield a session whose children use ``caches``. The children end with the ``with`` block."""
        settings = [self.setting] if self.setting.name == _CANARY.name else [self.setting, _CANARY]
        session = Session(
            RunOptions(redact=False), (self.target,), {self.target.device: tuple(settings)}, self.budgets,
            journal, None if self.simulated else caches.folder, self.simulated, self.launch,
            caches=caches.variables,
        )  # fmt: skip
        try:
            yield session
        finally:
            session.close(at_once=True)


def configured_device(
    profile: Optional[Path], setting: str, simulate: str, limit: Optional[float]
) -> ConfiguredDevice:
    """Return the device that the run tested, with the configuration that ``rocmprobe exec`` would use.

    ``limit`` is the time limit of a first call in seconds. Raise BadInput if the results cannot be used or
    are from another machine. Raise NothingToTest if the device or torch is missing, or if the configuration
    runs no convolution in MIOpen.
    """
    simulated = load_machine(simulate) if simulate else None
    chosen = choose(profile, setting, simulated=True)
    results, path = chosen.results, chosen.path
    _require_same_machine(path, results, simulated)
    name = chosen.configuration.setting
    if name is None:
        raise BadInput(f"{path}: {chosen.why_none}, so there is no configuration to warm; name a --setting")
    under = conditions(path, "auto", setting, simulated=True)
    found = results.setting(name)
    assert found is not None, "conditions refuses it"
    if library(results) != "MIOpen" or not found.vendor_library or found.bypass or found.device == "cpu":
        raise NothingToTest(f"{path}: the setting {name} runs no convolution in MIOpen: nothing to warm")
    if under.caches is None:
        raise BadInput(
            f"{path}: the setting {name} keeps your own databases and caches; name another --setting, or set "
            f"{VARIABLE} to a folder that you can write to"
        )
    if not simulated:
        _set_override(results)
    launch, machine = _here(results.environment, simulated)
    target = find_targets(device_of(results) or "auto", machine)[0]
    _require_same_chip(path, results, target)
    budgets = replace(BUDGETS["standard"], **(simulated.budgets if simulated else {}))
    # Do not limit hangs and crashes, because after a hang or crash the other directions can still be warmed.
    # Do not repeat starts, because one cold and one warm start are enough to show the gain.
    budgets = replace(budgets, hangs=math.inf, crashes=math.inf, starts=0)
    if limit:
        budgets = replace(budgets, first_call=limit)
    return ConfiguredDevice(path, machine, target, found, under.caches, launch, budgets, simulated)


def _require_same_machine(path: Path, results: Results, simulated: Optional[SimulatedMachine]) -> None:
    if results.simulated == (simulated.name if simulated else None):
        return
    of = f"the simulated machine {results.simulated}" if results.simulated else "a real machine"
    remedy = f"add --simulate {results.simulated}" if results.simulated else "leave out --simulate"
    raise BadInput(f"{path}: these results are from {of}; {remedy}, or name other results with --profile")


def _set_override(results: Results) -> None:
    for name in [name for name in os.environ if name.startswith(OVERRIDE)]:
        del os.environ[name]
    os.environ.update(isa_override(results))


def _here(
    environment: Optional[Environment], simulated: Optional[SimulatedMachine]
) -> tuple[Launch, Machine]:
    if simulated:
        return OWN, simulated.machine
    if environment is None:
        return OWN, detect()
    found = interpreters([f"{environment.name}={environment.local_path}"])[0]
    return launch_of(found.python), detect(python=found.imports)


def _require_same_chip(path: Path, results: Results, target: Device) -> None:
    isas = {(each.native_isa, each.effective_isa) for each in results.outcomes if each.native_isa}
    here = target.native_isa, target.effective_isa
    if isas and here not in isas:
        of = " and ".join(f"{native} as {effective}" for native, effective in sorted(isas, key=str))
        raise BadInput(
            f"{path}: the results are from {of}, but this GPU is {here[0]} as {here[1]}; "
            "start `rocmprobe run` here"
        )


def cases_of(on: ConfiguredDevice, problems: Sequence[Recorded]) -> list[Case]:
    """Return a case for each problem and each direction that the program computed.

    If the program computed no direction of a problem, return cases for all directions.
    """
    return [
        on.case(_CHECK, each.problem, direction)
        for each in problems
        for direction in DIRECTIONS
        if each.counts[direction] or not any(each.counts.values())
    ]


@dataclass(frozen=True)
class FirstCall:
    """The outcome of warming a case.

    ``earlier`` is True if the outcome was already in the journal.
    """

    case: Case
    outcome: Outcome
    earlier: bool

    @property
    def before(self) -> float:
        """Seconds of the first call in a new process, with cold caches."""
        return float(self.outcome.timings["cold_first_call"])

    @property
    def after(self) -> float:
        """Seconds of the first call in a new process, with warm caches."""
        return float(self.outcome.timings["warm_first_call"])

    @property
    def why_skipped(self) -> str:
        """Reason why the case could not be warmed, or "" for a warm case."""
        if self.outcome.works:
            return ""
        said = self.outcome.evidence[0] if self.outcome.evidence else "no information about it"
        return f"{self.outcome.state}: {said}"


def warm(on: ConfiguredDevice, cases: Sequence[Case], again: bool, retry: bool) -> Iterator[FirstCall]:
    """Run the cases, and yield the outcome of each.

    By default, cases with an outcome in the journal do not run. ``again`` repeats all cases, and ``retry``
    repeats failed cases. Raise BadInput if the journal is invalid.
    """
    journal = Journal(on.caches.folder, redact=False)
    with naming_journal(on.caches.folder):
        _reopen(on, journal, cases, again, retry)
    with on.session(journal, on.caches) as session:
        for case in cases:
            earlier = journal.find(case.id) is not None
            try:
                outcome = session.outcome(case)
            except KeyboardInterrupt:
                # Mark the interrupted case. Otherwise it would look like a case during which a process died.
                journal.append("retry", case=case.id)
                raise
            yield FirstCall(case, outcome, earlier)


def _reopen(on: ConfiguredDevice, journal: Journal, cases: Sequence[Case], again: bool, retry: bool) -> None:
    journal.append("resumed", at=now())
    for case in cases:
        settled = journal.find(case.id)
        begun = case.id in journal.state.questions
        if again or (retry and not (settled and settled.works)):
            if settled or begun:
                journal.append("retry", case=case.id)
        elif begun and not settled:
            journal.outcome(without_trial(case, on.target, "aborted", None, _AGAIN))


def warmed(on: ConfiguredDevice) -> list[Case]:
    """Return the cases that are warm according to the journal of the caches."""
    with naming_journal(on.caches.folder):
        state = Journal(on.caches.folder, redact=False).state
    return [state.questions[case] for case, each in state.outcomes.items() if each.works]


def is_wedged(on: ConfiguredDevice) -> bool:
    """Return True if the journal says that the device no longer responds."""
    return Journal(on.caches.folder, redact=False).wedged(on.target.device)
