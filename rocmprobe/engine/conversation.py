"""The conversation of a session with its worker processes. A crash or a hang of a worker is a reply, too."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional, Union

from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.detect.sensors import find_folder, read_conditions
from rocmprobe.detect.tree import Tree
from rocmprobe.engine.child import Child
from rocmprobe.engine.evidence import crash_cause, describe_exit, killed_for_memory, last_call, oom_kills
from rocmprobe.engine.journal import BaseJournal, Ended, Waiting, Wedged
from rocmprobe.engine.launch import databases_folder, environment, kernels_folder, must_spawn
from rocmprobe.engine.liveness import COMPILING, BusySensor, Verdict, Watch
from rocmprobe.engine.setup import Setup
from rocmprobe.model.results import Trial
from rocmprobe.process.guardian import guardian
from rocmprobe.process.leftovers import own_folder
from rocmprobe.process.processes import stuck_at
from rocmprobe.text.readable import duration
from rocmprobe.worker.messages import (
    Answer,
    Event,
    Measuring,
    Phase,
    Preliminary,
    Ready,
    Repetition,
    Spec,
    Unusable,
)

#: Seconds without an event after which the journal records that the case waits.
_SOON = 2.0


@dataclass
class Reply:
    """A worker's answers to one case.

    - ``trial``: id of the worker
    - ``over``: True if the worker cannot run another case
    - ``phase``: last phase
    - ``activity``: what a hung worker did
    - ``log``: output during the case
    - ``ending``: as in ``results.Outcome``
    """

    answers: list[CheckResult]
    trial: str
    over: bool = False
    phase: Optional[str] = None
    activity: Optional[str] = None
    log: str = ""
    ending: Mapping[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return self.answers[-1].state


@dataclass
class _Worker:
    """The current worker. ``case`` and the fields from ``phase`` on belong to its current case."""

    child: Child
    id: str
    case: Case
    environ: Mapping[str, str]
    sensor: Optional[BusySensor]
    started: float = field(default_factory=time.monotonic)
    library: Optional[str] = None
    mapped: dict[str, list[str]] = field(default_factory=dict)
    last_event: Optional[str] = None
    phase: str = "start"
    repetition: int = 1
    preliminary: Optional[CheckResult] = None
    oom_kills: Mapping[str, int] = field(default_factory=oom_kills)

    @property
    def repetitions(self) -> dict[str, int]:
        """The number of repetitions that began, as an entry of ``CheckResult.numerics``."""
        return {"repetitions": self.repetition} if self.case.repeats > 1 else {}

    @property
    def after(self) -> str:
        """Return how long the worker has repeated one computation, or how often, if its case does so."""
        if self.case.repeats > 1:
            return f" in repetition {self.repetition} of {self.case.repeats}"
        if not CHECKS[self.case.check].once:
            return ""
        return f" after {duration(time.monotonic() - self.started)}"


def kernel_threads(on_cpu: bool, sharing: int) -> int:
    """Return the number of CPU threads for a worker's kernels, or 0 for torch's default.

    ``sharing`` is the number of processes that run tests at once and share the cores.
    """
    if not on_cpu or sharing == 1:
        return 0
    return max(1, len(os.sched_getaffinity(0)) // sharing)


class Conversation:
    """The worker processes of a session, of which at most one runs at a time.

    ``conditions`` are clocks and temperatures "before" and "after" the last measurement.
    """

    def __init__(self, setup: Setup, journal: BaseJournal) -> None:
        self.conditions: dict[str, dict[str, float]] = {}
        self._setup = setup
        self._journal = journal
        self._worker: Optional[_Worker] = None
        self._folder = own_folder()
        self._sensors: dict[str, BusySensor] = {}
        self._guardian = guardian()
        self._guardian.remove(self._folder)
        self._handlers: Mapping[type[Event], Callable[[_Worker, Any], Optional[Reply]]] = {
            Ready: self._on_ready,
            Unusable: self._on_unusable,
            Phase: self._on_phase,
            Repetition: self._on_repetition,
            Measuring: self._on_measuring,
            Preliminary: self._on_preliminary,
            Answer: self._on_answer,
        }

    def ask(self, case: Case) -> Reply:
        """Run ``case`` once in the current worker, or in a new worker if the current one cannot run it."""
        fresh = self._setup.simulated is not None and self._setup.simulated.fresh
        reply = None
        if self._worker is None or self._worker.case.trial_key != case.trial_key or fresh:
            self.end()
            self._worker = self._started(case)
            reply = self._listen(self._worker)
        if reply is None:
            worker = self._worker
            worker.case, worker.phase, worker.preliminary = case, "prepare", None
            worker.repetition = 1
            worker.oom_kills = oom_kills()
            worker.child.mark()
            worker.child.send(case)
            reply = self._listen(worker)
            assert reply is not None, "a worker is ready only once"
        if reply.over:
            self.end()
        return reply

    def forget_databases(self, case: Case) -> None:
        """End the worker, and remove the databases and caches of the case's setting."""
        self.end()
        shutil.rmtree(databases_folder(self._folder, case), ignore_errors=True)

    def end(self, at_once: bool = False) -> None:
        """Let the worker end, or kill the worker if ``at_once`` is True."""
        if self._worker:
            child = self._worker.child
            exit_status = child.kill(grace=0.2) if at_once else child.close(self._setup.budgets.teardown)
            self._record(exit_status, after_last_answer=not at_once)

    def close(self, at_once: bool) -> None:
        """End the worker as ``end`` does, and remove the temporary folder."""
        try:
            self.end(at_once)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def drop(self) -> None:
        """Kill the worker after an error in this process."""
        with contextlib.suppress(OSError, ValueError):
            self.end(at_once=True)
        self._worker = None

    def _started(self, case: Case) -> _Worker:
        setup, row = self._setup, self._setup.setting(case)
        setting = self._journal.completed(case, row)
        folder = databases_folder(self._folder, case)
        folder.mkdir(parents=True, exist_ok=True)
        trace = {} if case.exclusive else setup.backend(case).trace_variables
        kernels = kernels_folder(self._folder, case, setting)
        simulated = setup.simulated
        user = simulated.environment(os.environ) if simulated else os.environ
        environ = environment(setting, folder, kernels, trace, user)
        if simulated:
            # Do not store the speed of this machine's CPU as the speed of the simulated GPU.
            environ["ROCMPROBE_BYPASS_MEASURE"] = "0"
        # The fork server has imported torch, so a case that runs without torch needs a new process.
        spawn = setup.spawn or case.direct or must_spawn(setting)
        budgets = setup.budgets
        # The sensor's first readings show the load of the GPU without this worker.
        sensor = self._sensor(case, folder)
        child = Child(environ, folder, spawn, budgets.server or budgets.start)
        self._guardian.watch(child.pid)
        threads = kernel_threads(setup.on_cpu(case), 1 if case.exclusive else setup.sharing)
        child.send(
            Spec(
                # A program that sees only one GPU calls it cuda:0.
                "cuda:0" if setting.one_device else case.device,
                setup.target(case).backend,
                setting,
                budgets.measure,
                environ,
                case,
                simulated,
                threads,
                budgets.soak,
            )
        )
        return _Worker(child, f"{case.trial_key}#{secrets.token_hex(3)}", case, environ, sensor)

    def _sensor(self, case: Case, folder: Path) -> Optional[BusySensor]:
        """Return the sensor of the GPU that computes ``case``. A simulated GPU has it in ``folder``."""
        setup, gpu = self._setup, self._setup.target(case).gpu
        if gpu is None or setup.setting(case).device == "cpu":
            return None
        device = str(folder) if setup.simulated else find_folder(Tree(Path("/")), gpu)
        if device and device not in self._sensors:
            self._sensors[device] = BusySensor(device)
        return self._sensors.get(device)

    def _listen(self, worker: _Worker) -> Optional[Reply]:
        """Return the reply to the current case. Return None if the worker is ready for its first case."""
        while True:
            limits = self._setup.budgets.limits(worker.phase)
            # The first samples come late, so that they do not include the start of Python.
            soon = min(_SOON, limits.stall / 8, limits.most / 2)
            watch = Watch(worker.child.pid, worker.environ, worker.sensor, limits)
            try:
                event = worker.child.event(soon) or self._awaited(worker, watch)
            except EOFError:
                return self._crashed(worker)
            if isinstance(event, Verdict):
                return self._hung(worker, event, watch.waited)
            reply = self._handlers[type(event)](worker, event)
            if reply is not None or isinstance(event, Ready):
                return reply

    def _awaited(self, worker: _Worker, watch: Watch) -> Union[Event, Verdict]:
        """Return the next event, or the verdict that the worker hangs."""
        shown = None
        try:
            while True:
                verdict = watch.look()
                left = verdict.limit - watch.waited
                if left <= 0:
                    return verdict
                compiles = verdict.activity in COMPILING
                if shown != (verdict.limit, compiles):
                    # Record the wait in the journal, for the progress output and in case the run dies.
                    shown = verdict.limit, compiles
                    self._journal.append(Waiting(worker.case.id, worker.phase, round(left, 1), compiles))
                event = worker.child.event(min(watch.interval, left))
                if event is not None:
                    return event
        finally:
            if shown:
                self._journal.append(Waiting(worker.case.id, worker.phase, 0))

    def _on_ready(self, worker: _Worker, event: Ready) -> None:
        worker.last_event, worker.library = "ready", event.library
        worker.mapped.update(event.mapped)

    def _on_unusable(self, worker: _Worker, event: Unusable) -> Reply:
        failure = CheckResult("error", event.message, "torch-unusable")
        return Reply([failure], worker.id, True, worker.phase, log=worker.child.log.text())

    def _on_phase(self, worker: _Worker, event: Phase) -> None:
        worker.phase, worker.last_event = event.phase, f"phase {event.phase}"

    def _on_repetition(self, worker: _Worker, event: Repetition) -> None:
        worker.repetition = event.number

    def _on_measuring(self, worker: _Worker, event: Measuring) -> None:
        case = worker.case
        gpu = None if self._setup.on_cpu(case) else self._setup.target(case).gpu
        found = read_conditions(Tree(Path("/")), gpu)
        if found and (event.when == "after" or event.when not in self.conditions):
            self.conditions[event.when] = found

    def _on_preliminary(self, worker: _Worker, event: Preliminary) -> None:
        worker.preliminary = event.result

    def _on_answer(self, worker: _Worker, event: Answer) -> Reply:
        worker.last_event = "answer"
        worker.mapped.update(event.mapped)
        log = worker.child.since_mark.text()
        return Reply(event.attempts, worker.id, event.poisoned, worker.phase, log=log)

    def _crashed(self, worker: _Worker) -> Reply:
        exit_status = worker.child.exit(self._setup.budgets.teardown)
        ending, log = _ending(worker, exit_status), worker.child.since_mark.text()
        where = f"in phase {worker.phase}{last_call(log)}{worker.after}"
        where = "while importing torch" if worker.phase == "start" else where
        oom_killed = ending["oom_killed"]
        message = f"the process ended with {describe_exit(exit_status, oom_killed)} {where}"
        crash = CheckResult(
            "crash", message, crash_cause(exit_status, oom_killed), numerics=worker.repetitions
        )
        self._record(exit_status)
        return Reply(
            [_result_before_yardstick(worker, crash)], worker.id, True, worker.phase, None, log, ending
        )

    def _hung(self, worker: _Worker, verdict: Verdict, waited: float) -> Reply:
        child = worker.child
        stuck = stuck_at(child.pid)
        child.dump_stacks()
        log = child.since_mark.text()
        exit_status = child.kill()
        ending = _ending(worker, exit_status)
        # A worker that compiled before has waited longer than the limit.
        seconds = verdict.limit if waited < verdict.limit + 2 else round(waited)
        doing = verdict.activity
        message = f"no answer in {seconds:g} s in phase {worker.phase}{last_call(log)}{worker.after}, {doing}"
        hang = CheckResult("hang", message, "timeout", numerics=worker.repetitions, evidence=stuck)
        self._record(exit_status)
        return Reply(
            [_result_before_yardstick(worker, hang)], worker.id, True, worker.phase, doing, log, ending
        )

    def _record(self, exit_status: str, after_last_answer: bool = False) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        if exit_status != "unkillable":
            self._guardian.forget(worker.child.pid)
        case = worker.case
        trial = Trial(
            worker.id, case.device, case.setting, worker.child.start_method,
            exit_status, after_last_answer and exit_status != "0", worker.child.log.text(),
            round(time.monotonic() - worker.started, 3), worker.library,
            {name: tuple(paths) for name, paths in worker.mapped.items()},
        )  # fmt: skip
        self._journal.append(Ended(trial))
        if exit_status == "unkillable":
            self._journal.append(Wedged(case.device))


def _ending(worker: _Worker, exit_status: str) -> dict[str, Any]:
    killed = killed_for_memory(worker.oom_kills, oom_kills())
    return {
        "status": exit_status, "phase": worker.phase, "after": worker.last_event, "oom_killed": killed,
    }  # fmt: skip


def _result_before_yardstick(worker: _Worker, failure: CheckResult) -> CheckResult:
    """Return the result that the worker sent before a failure in the phase "yardstick".

    This phase times reference operations. In other phases, or if the worker sent no result, return
    ``failure``.
    """
    if worker.preliminary is None or worker.phase != "yardstick":
        return failure
    return replace(worker.preliminary, message=f"the reference operations were not timed: {failure.message}")
