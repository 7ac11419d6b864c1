"""Runs of simulated machines without trials: an oracle replays the library calls of each check.

Each check runs once on the CPU without faults, and the oracle records its library calls. For each case of a
machine, the recorded calls meet the machine's faults by the rules of ``rocmprobe.simulate.gpu``. The plan,
the ladder, the retries, the outcomes and the judgement are those of a real run.

To compare the oracle with runs that had trials, name their folders::

    python benchmarks/oracle.py RECORDINGS FOLDER... -o benchmarks/results/oracle.md

An outcome agrees if it is the same as with each fault that can happen, or if the fault is rare and did not
happen.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import runpy
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Optional
from unittest import mock

from figures import heading, publish, table

from rocmprobe.checks import DIRECT
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.engine import run, trial
from rocmprobe.engine.conversation import Reply
from rocmprobe.engine.evidence import crash_cause
from rocmprobe.engine.journal import BaseJournal, End, RunJournal
from rocmprobe.engine.ladder import default_cases
from rocmprobe.engine.outcome import outcome_of
from rocmprobe.engine.plan import Request, cases, in_order
from rocmprobe.engine.session import Session
from rocmprobe.engine.setup import Setup, setup_of
from rocmprobe.knowledge.environment import environment
from rocmprobe.knowledge.settings import Versions, reason_without_effect
from rocmprobe.model.options import RunOptions
from rocmprobe.model.results import Results, Setting, Trial
from rocmprobe.report.write import judged
from rocmprobe.simulate.gpu import SimulatedGpu
from rocmprobe.simulate.machines import CTC_SINCE, Fault, SimulatedMachine, torch_version
from rocmprobe.worker import main as worker
from rocmprobe.worker.messages import Spec

SUITES = Path(__file__).parent.parent / "suites"
#: Checks that start processes, compile or read sensors. The oracle lets them pass.
UNRECORDED = ("data-loader", "data-loader-spawn", "soak", "start-up")


class Died(Exception):
    """A fault that ends or blocks the process."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.effect)
        self.fault = fault


class RecordingGpu(SimulatedGpu):
    """A GPU without faults that records the phases and the library calls of a check."""

    def __init__(self, machine: SimulatedMachine, setting: str) -> None:
        # The libraries report operators only to a machine that has a fault in an operator.
        super().__init__(
            replace(machine, faults=(Fault("hip", "print", operator="^$"),)), setting, "cuda:0", 2
        )
        self.calls: list[tuple[Any, ...]] = []

    def report(self, phase: str, case: Case) -> None:
        super().report(phase, case)
        if self.calls[-1:] != [("phase", phase)] or phase == "steady":
            self.calls.append(("phase", phase))

    def convolution(self, library: str, problem: str, dtype: str, directions: tuple[str, ...]) -> Any:
        self.calls.append(("convolution", library, problem, dtype, directions))
        return None, ()

    def operator(self, libraries: tuple[str, ...], name: str, dtype: str, changeable: bool = True) -> bool:
        # A repeated operator between two phases happens or fails like the first.
        self.calls.append(("operator", libraries, name, dtype, changeable))
        return False


class ReplayedGpu(SimulatedGpu):
    """A GPU with the faults of a machine, in a process that computes nothing."""

    def __init__(
        self, machine: SimulatedMachine, setting: str, environ: Mapping[str, str], chance: random.Random
    ) -> None:
        super().__init__(machine, setting, "cuda:0", 2)
        self.environ = environ
        self.lines: list[str] = []
        self._chance = chance

    def happens(self, fault: Fault) -> bool:
        return self._chance.random() < fault.chance

    def log(self, line: str) -> None:
        self.lines.append(line)

    def inject(self, fault: Fault, directions: tuple[str, ...], problem: str = "") -> None:
        if fault.effect in ("signal", "exit", "hang", "busy", "ignore-term"):
            raise Died(fault)
        if fault.effect in ("raise", "wrong"):
            super().inject(fault, directions, problem)

    def _show_load(self, percent: int) -> None:
        pass


class Always(random.Random):
    """A random generator under which each fault happens."""

    def random(self) -> float:
        return -1.0


class Replay:
    """A worker's driver that replays the recorded calls of a case."""

    def __init__(
        self, gpu: Optional[ReplayedGpu], recorded: Callable[[Case], Any], reason: Optional[str]
    ) -> None:
        self.gpu = gpu
        self._recorded = recorded
        self._reason = reason

    def device_answers(self) -> bool:
        return True

    def library_version(self) -> Optional[str]:
        return None

    def attempt(self, case: Case) -> CheckResult:
        if self._reason:
            return CheckResult("n/a", self._reason)
        result, calls = self._recorded(case)
        result = pickle.loads(result)  # noqa: S301 - pickled by this process
        if self.gpu is None or result.state == "n/a":
            return result
        try:
            self.gpu.enter("prepare", case)
            if any(_happens(self.gpu, case, call) for call in calls):
                result.state, result.message = "wrong", "the oracle doubled a part of a result"
                result.numerics["exact"] = False
        except RuntimeError as error:
            failure = "miopen-status" if "miopenStatus" in str(error) else "exception"
            return CheckResult("error", f"RuntimeError: {error}", failure)
        return result


def _happens(gpu: ReplayedGpu, case: Case, call: tuple[Any, ...]) -> bool:
    """Replay one call. Return True if a fault makes its result wrong."""
    what, *arguments = call
    if what == "phase":
        gpu.report(arguments[0], case)
        return False
    if what == "convolution":
        return gpu.convolution(*arguments)[0] is not None
    return gpu.operator(*arguments)


class Recordings:
    """The library calls and the result of each check on a machine without faults."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[tuple[Any, ...], Any] = pickle.loads(path.read_bytes()) if path.exists() else {}  # noqa: S301
        self._new = 0

    def of(self, case: Case, setting: Setting, machine: SimulatedMachine) -> Any:
        # No other call depends on the machine's torch.
        ctc = case.check == "ctc-loss" and (torch_version(machine.machine) or (99, 0)) >= CTC_SINCE
        way = (setting.vendor_library, setting.bypass, setting.pytorch_layers, setting.device, ctc)
        key = (case.check, case.dtype, case.problem, case.direction, *way)
        if key not in self._kept:
            self._kept[key] = self._record(case, setting, machine)
            self._new += 1
            if self._new % 50 == 0:
                self._path.write_bytes(pickle.dumps(self._kept))
        return self._kept[key]

    def save(self) -> None:
        if self._new:
            self._path.write_bytes(pickle.dumps(self._kept))
            self._new = 0

    def _record(self, case: Case, setting: Setting, machine: SimulatedMachine) -> Any:
        if case.check in UNRECORDED:
            return pickle.dumps(CheckResult()), []
        worker.import_torch()
        from rocmprobe.worker.torch_driver import TorchDriver

        plain = replace(
            setting, env={}, torch={}, unset=(), since="", until="", torch_since="", torch_until=""
        )
        gpu = RecordingGpu(machine, setting.name)
        spec = Spec("cuda:0", "miopen", plain, 0.01, {}, case, machine, 1, 0.1)
        result = TorchDriver(spec, lambda event: None, gpu).attempt(replace(case, repeats=1))
        if result.state not in ("pass", "n/a"):
            print("recorded", case.id, result.state, result.message)
        # A fault that happens at random meets the same call again and again in each repetition.
        return pickle.dumps(result), gpu.calls


class Oracle:
    """The conversation of a session with the recordings, in place of worker processes."""

    recordings: Optional[Recordings] = None
    seed = 0

    def __init__(self, setup: Setup, journal: BaseJournal) -> None:
        self.conditions: dict[str, dict[str, float]] = {}
        self._setup, self._journal = setup, journal
        self._chance = random.Random(self.seed)  # noqa: S311

    def end(self, at_once: bool = False) -> None:
        pass

    def close(self, at_once: bool) -> None:
        pass

    def drop(self) -> None:
        pass

    def forget_databases(self, case: Case) -> None:
        pass

    def replay(self, case: Case, chance: Optional[random.Random] = None) -> Replay:
        """Return the driver for ``case``."""
        setup = self._setup
        setting = self._journal.completed(case, setup.setting(case))
        machine = setup.simulated
        recordings = self.recordings
        assert machine is not None
        assert recordings is not None
        environ = environment(setting, machine.environment({}))
        environ.update(setup.backend(case).trace_variables if not case.exclusive else {})
        gpu = ReplayedGpu(machine, setting.name, environ, chance or self._chance)
        facts = machine.machine
        rocm = facts.value("torch.hip") or facts.value("rocm.version")
        versions = Versions("MIOpen", facts.value("miopen.version"), facts.value("torch.version"), rocm)
        return Replay(
            None if setting.device == "cpu" else gpu,
            lambda each: recordings.of(each, setting, machine),
            reason_without_effect(setting, versions),
        )

    def ask(self, case: Case) -> Reply:
        driver = self.replay(case)
        over, activity, ending = False, None, {}
        try:
            attempts, over = worker.answer(driver, case, lambda event: None)
        except Died as died:
            effect, over = died.fault.effect, True
            status = {"signal": died.fault.signal, "exit": "3"}.get(effect, "SIGTERM")
            ending = {
                "status": status,
                "phase": "first-call",
                "after": "phase first-call",
                "oom_killed": None,
            }
            if effect in ("signal", "exit"):
                attempts = [CheckResult("crash", f"the process ended with {status}", crash_cause(status))]
            else:
                attempts, activity = [CheckResult("hang", "no answer", "timeout")], "sleeping"
        log = "\n".join(driver.gpu.lines) if driver.gpu else ""
        name = f"{case.trial_key}#{len(self._journal.state.trials):06}"
        self._journal.state.trials.append(
            Trial(name, case.device, case.setting, "fork", "killed" if activity else "0")
        )
        return Reply(attempts, name, over, "first-call", activity, log, ending)


class MemoryJournal(RunJournal):
    """A run's journal whose new records stay in memory."""

    def _write(self, line: bytes) -> None:
        pass


def suite_requests() -> Iterator[Request]:
    """Yield the requests of all suites."""
    for path in sorted(SUITES.glob("test_*.py")):
        yield from runpy.run_path(str(path))["REQUESTS"]


@contextmanager
def recording(recordings: Recordings, seed: int) -> Iterator[None]:
    """Let sessions that begin in this context ask the oracle. ``seed`` is for rare faults."""
    # Do not store the times of this CPU.
    os.environ["ROCMPROBE_BYPASS_MEASURE"] = "0"
    own = mock.patch.multiple(Oracle, recordings=recordings, seed=seed)
    with own, mock.patch.object(trial, "Conversation", Oracle):
        yield
    recordings.save()


def oracle_run(file: Path, folder: Path, whole: bool = True) -> tuple[Session, Results]:
    """Run the machine in ``file`` with the oracle. Without ``whole``, only climb the ladder."""
    shutil.rmtree(folder, ignore_errors=True)
    run.begin(RunOptions(simulate=str(file)), folder)
    journal = MemoryJournal(folder)
    session = Session(setup_of(journal.run, folder), journal)
    requests = list(suite_requests()) if whole else []
    if whole:
        ordered = list(planned_cases(session).values())
    else:
        ordered = list(default_cases(session.setup, session.setup.targets[0]))
    session.plan(ordered)
    for case in chain(session.climbing(requests, lambda: None), ordered if whole else ()):
        session.outcome(case)
    journal.append(End(run.now()))
    return session, judged(journal)


def planned_cases(session: Session) -> dict[str, Case]:
    """Return the cases of the suites on the first device, in the order of a run, keyed by id."""
    setup, target = session.setup, session.setup.targets[0]
    planned = {
        case.id: case
        for request in suite_requests()
        for case in cases(request, target, setup.settings[target.device], setup.options)
        if case.check not in DIRECT
    }
    return {case.id: case for case in in_order(tuple(planned.values()))}


def always(session: Session, case: Case) -> bool:
    """Return True if the case can fail, i.e. if it fails when each fault happens whenever it can."""
    return worst_state(session, case) not in ("pass", "n/a")


def worst_state(session: Session, case: Case) -> str:
    """Return the state of the case when each fault happens whenever it can."""
    driver = Oracle(session.setup, session.journal).replay(case, Always())
    try:
        result = driver.attempt(replace(case, repeats=1))
    except Died as died:
        return "crash" if died.fault.effect in ("signal", "exit") else "hang"
    log = "\n".join(driver.gpu.lines) if driver.gpu else ""
    # A setting that switches solvers off can leave none, which is no failure.
    setup = session.setup
    setting = session.journal.completed(case, setup.setting(case))
    backend = setup.backend(case)
    return outcome_of(case, [Reply([result], "", log=log)], setup.target(case), setting, backend).state


def compare(folder: Path) -> Counter[tuple[str, str, str]]:
    """Count the outcomes of a run with trials by agreement, state there, and state with the oracle."""
    journal = MemoryJournal(folder)
    session = Session(setup_of(journal.run, folder), journal)
    counted: Counter[tuple[str, str, str]] = Counter()
    machine = session.setup.simulated
    rare = machine is not None and any(fault.chance < 1 for fault in machine.faults)
    for case in journal.state.questions.values():
        outcome = journal.find(case.id)
        if outcome is None or not outcome.attempts or case.check in UNRECORDED:
            continue
        worst, state = worst_state(session, case), outcome.attempts[-1].state
        failed = next((each.state for each in outcome.attempts if each.state not in ("pass", "n/a")), state)
        own = outcome.state if outcome.state in ("n/a", "slow", "pass") else failed
        agrees = own == worst or (rare and own in ("pass", "slow") and worst not in ("pass", "n/a", "slow"))
        counted["agree" if agrees else "differ", own, worst] += 1
        if not agrees:
            print(folder.name, case.id, own, worst, outcome.evidence[:1])
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    recordings, rows = Recordings(arguments.recordings), []
    with recording(recordings, 0):
        for folder in arguments.folders:
            counted = compare(folder)
            sums = {
                word: sum(n for key, n in counted.items() if key[0] == word) for word in ("agree", "differ")
            }
            failed = sum(n for (_, state, _), n in counted.items() if state not in ("pass", "n/a", "slow"))
            rows.append((folder.name, *sums.values(), failed))
    lines = heading("The oracle beside trials", "python benchmarks/oracle.py RECORDINGS FOLDER...")
    publish([*lines, *table(("run", "agree", "differ", "failed"), rows)], arguments.output)


if __name__ == "__main__":
    main()
