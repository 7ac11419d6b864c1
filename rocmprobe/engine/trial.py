"""Execution of cases in child processes. Every crash or hang of a child becomes an outcome."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Optional

from rocmprobe.backends import BACKENDS, Backend
from rocmprobe.checks import CHECKS, CONVOLUTIONS
from rocmprobe.checks.tools.case import Case
from rocmprobe.detect.sensors import read_conditions
from rocmprobe.detect.tree import Tree
from rocmprobe.engine.budgets import Budgets
from rocmprobe.engine.child import Child
from rocmprobe.engine.evidence import (
    crash_cause,
    describe_exit,
    evidence_of,
    killed_for_memory,
    last_call,
    oom_kills,
)
from rocmprobe.engine.journal import BaseJournal
from rocmprobe.engine.launch import (
    databases_folder,
    environment,
    kernels_folder,
    must_spawn,
)
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.gpus import OVERRIDE, isa_of_override
from rocmprobe.knowledge.miopen_log import Reading, had_no_solver, reason_not_tested
from rocmprobe.knowledge.solvers import is_switch
from rocmprobe.model.results import Attempt, Outcome, Setting, Trial
from rocmprobe.model.results_file import to_json
from rocmprobe.model.states import works
from rocmprobe.process.guardian import guardian
from rocmprobe.process.leftovers import own_folder
from rocmprobe.process.processes import active_seconds, activity, stuck_at
from rocmprobe.simulate.machines import SimulatedMachine
from rocmprobe.text.durations import duration

#: Maximum number of tries of a case, keyed by its state. If the child can run another case after the failure,
#: there is only one try.
TRIES = {"crash": 3, "error": 3, "hang": 2}
#: Seconds without an event after which the journal records that the case waits.
_SOON = 2.0
#: Number of pairs of a cold and a warm start, if there is time. With three pairs, it is unlikely (1 in 20)
#: that all warm starts are faster than all cold starts by chance.
START_ROUNDS = 3


@dataclass
class _Reply:
    """A child's answers to one case. ``over`` is True if the child cannot run another case."""

    answers: list[dict[str, Any]]
    over: bool = False
    phase: Optional[str] = None
    activity: Optional[str] = None
    log: str = ""
    ending: dict[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return str(self.answers[-1]["state"])


_READY = _Reply([])


@dataclass
class _Live:
    child: Child
    id: str
    key: str
    case: Case
    started: float = field(default_factory=time.monotonic)
    library: Optional[str] = None
    mapped: dict[str, list[str]] = field(default_factory=dict)
    last_event: Optional[str] = None
    settled: Optional[dict[str, Any]] = None
    oom_kills: dict[str, int] = field(default_factory=oom_kills)


def kernel_threads(on_cpu: bool, sharing: int) -> int:
    """Return the number of CPU threads for a child's kernels, or 0 for torch's default.

    ``sharing`` is the number of processes that run tests at once and share the cores.
    """
    if not on_cpu or sharing == 1:
        return 0
    return max(1, len(os.sched_getaffinity(0)) // sharing)


class Trials:
    """The child processes of a session, of which at most one runs at a time."""

    def __init__(
        self,
        targets: Mapping[str, Device],
        settings: Mapping[str, Mapping[str, Setting]],
        budgets: Budgets,
        simulated: Optional[SimulatedMachine],
        journal: BaseJournal,
        sharing: int = 1,
        spawn: bool = False,
    ) -> None:
        self._spawn = spawn
        self._conditions: dict[str, dict[str, float]] = {}
        self._sharing = sharing
        self._targets = targets
        self._settings = settings
        self._derived: dict[tuple[str, str], Setting] = {}
        self._budgets = budgets
        self._simulated = to_json(simulated) if simulated else None
        self._fresh = simulated is not None and simulated.fresh
        self._journal = journal
        self._live: Optional[_Live] = None
        self._folder = own_folder()
        self._guardian = guardian()
        self._guardian.remove(self._folder)

    def derive(self, case: Case, setting: Setting) -> None:
        """Use ``setting`` for all cases with the device and setting name of ``case``."""
        self._derived[case.device, case.setting] = setting

    def _setting(self, case: Case) -> Setting:
        derived = self._derived.get((case.device, case.setting))
        return derived or self._settings[case.device][case.setting]

    def close(self, at_once: bool) -> None:
        """End the child, by a signal if ``at_once`` is True, and remove the temporary folder."""
        try:
            self._end_child(at_once)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def drop(self) -> None:
        """Kill the child after an error in this process."""
        with contextlib.suppress(OSError, ValueError):
            self._end_child(at_once=True)
        self._live = None

    def outcome(self, case: Case) -> Outcome:
        """Run ``case`` in a child and return the outcome."""
        self._conditions = {}
        outcome = self._start_up(case) if case.check == "start-up" else self._asked(case)
        return replace(outcome, conditions=self._conditions)

    def _start_up(self, case: Case) -> Outcome:
        """Run ``case`` in new processes, alternately with empty (cold) and with filled (warm) databases."""
        cold: list[Outcome] = []
        warm: list[Outcome] = []
        ends = time.monotonic() + self._budgets.starts
        # Alternate, so that a change of the machine's load affects cold and warm starts equally.
        while not cold or (len(cold) < START_ROUNDS and time.monotonic() < ends):
            self._end_child()
            shutil.rmtree(databases_folder(self._folder, case), ignore_errors=True)
            for outcomes in (cold, warm):
                outcomes.append(self._asked(case))
                self._end_child()
                if not outcomes[-1].works:
                    return merge_starts(cold, warm)
        return merge_starts(cold, warm)

    def _asked(self, case: Case) -> Outcome:
        replies = [self._reply(case)]
        trials = [self._last_id] * len(replies[-1].answers)
        if self._budgets.tries == 1:
            return self._made(case, replies, trials)
        while replies[-1].over and len(replies) < self._tries(replies[-1].state, case):
            # Do not test the device if the import of torch failed, because the device was not used then.
            if replies[-1].phase != "start" and not self._device_answers(case):
                self._journal.append("wedged", device=case.device)
                break
            replies.append(self._reply(case))
            trials += [self._last_id] * len(replies[-1].answers)
            self._end_child()
        untested = works(replies[-1].state) or CHECKS[case.check].once
        if replies[-1].over and untested and replies[-1].phase != "start" and not self._device_answers(case):
            self._journal.append("wedged", device=case.device)
        return self._made(case, replies, trials)

    def _tries(self, state: str, case: Case) -> int:
        """Return the maximum number of tries for a case in ``state``."""
        if CHECKS[case.check].once:
            return 1
        # Retry only the first hang of a setting. All settings that force a solver count as one setting.
        proven = self._journal.count(state, case, of="check" if case.check == "solver" else "setting")
        return 1 if state == "hang" and proven else TRIES.get(state, 1)

    def _reply(self, case: Case) -> _Reply:
        if self._live is None or self._live.key != case.trial_key or self._fresh:
            self._end_child()
            child = self._started(case)
            reply = self._await_answer(child, "start")
        else:
            child = self._live.child
            self._live.case, self._live.oom_kills = case, oom_kills()
            reply = _READY
        if reply is _READY:
            child.mark()
            if self._live:
                self._live.settled = None
            child.send(to_json(case))
            reply = self._await_answer(child, "prepare")
        if reply.over:
            self._end_child()
        return reply

    def _read_conditions(self, case: Case, when: str) -> None:
        """Store clocks and temperatures. ``when`` is "before" or "after" a measurement."""
        gpu = None if self._on_cpu(case) else self._targets[case.device].gpu
        found = read_conditions(Tree(Path("/")), gpu)
        if found and (when == "after" or when not in self._conditions):
            self._conditions[when] = found

    def _on_cpu(self, case: Case) -> bool:
        return self._simulated is not None or "cpu" in (self._setting(case).device, case.device)

    def _backend(self, case: Case) -> Backend:
        on_cpu = self._setting(case).device == "cpu"
        return BACKENDS["onednn" if on_cpu else self._targets[case.device].backend]

    def _started(self, case: Case) -> Child:
        target, setting = self._targets[case.device], self._setting(case)
        folder = databases_folder(self._folder, case)
        folder.mkdir(parents=True, exist_ok=True)
        trace = {} if case.exclusive else self._backend(case).trace_variables
        kernels = kernels_folder(self._folder, case, setting)
        environ = environment(setting, folder, kernels, trace, os.environ)
        if self._simulated:
            # Do not store the speed of this machine's CPU as the speed of the simulated GPU.
            environ["ROCMPROBE_BYPASS_MEASURE"] = "0"
        # The fork server has imported torch, so a case that runs without torch needs a new process.
        spawn = self._spawn or case.direct or must_spawn(setting)
        child = Child(environ, folder, spawn, self._budgets.server or self._budgets.start)
        self._guardian.watch(child.pid)
        trial_id = f"{case.trial_key}#{secrets.token_hex(3)}"
        self._live = _Live(child, trial_id, case.trial_key, case)
        self._last_id = trial_id
        on_cpu = self._simulated is not None or (setting.device or case.device) == "cpu"
        threads = kernel_threads(on_cpu, 1 if case.exclusive else self._sharing)
        child.send(
            {
                "device": case.device, "backend": target.backend, "setting": to_json(setting),
                "seconds": self._budgets.measure,
                "simulated": self._simulated, "environ": environ, "threads": threads,
                "first": to_json(case), "soak": self._budgets.soak,
            }
        )  # fmt: skip
        return child

    def _await_answer(self, child: Child, phase: str) -> _Reply:
        while True:
            active, budget = active_seconds(child.pid), self._budgets.of(phase)
            waited = min(budget, _SOON)
            try:
                event = child.event(waited)
                if event is None and budget > _SOON:
                    # Measure the CPU time from here, so that it does not include the start of Python.
                    active, waited = active_seconds(child.pid), budget - _SOON
                    # Record the wait in the journal, for the progress output and in case the run dies.
                    event = self._awaited(child, phase, waited)
            except EOFError:
                return self._crashed(child, phase)
            if event is None:
                return self._hung(child, phase, activity(child.pid, active, waited), budget)
            live = self._live
            assert live is not None, "only a running child sends events"
            if event["event"] in ("measuring", "measured"):
                self._read_conditions(live.case, "before" if event["event"] == "measuring" else "after")
                continue
            live.mapped.update(event.get("mapped") or {})
            live.library = event.get("library") or live.library
            if event["event"] == "settled":
                live.settled = event["answer"]
                continue
            live.last_event = event["event"]
            if event["event"] == "phase":
                phase = event["phase"]
                live.last_event = f"phase {phase}"
            elif event["event"] == "ready":
                return _READY
            elif event["event"] == "unusable":
                return _Reply(
                    [_answer("error", event["message"], "torch-unusable")], True, phase, log=child.log.text()
                )
            elif event["event"] == "answer":
                log = child.since_mark.text()
                return _Reply(event["attempts"], event["poisoned"], phase, log=log)

    def _awaited(self, child: Child, phase: str, seconds: float) -> Optional[dict[str, Any]]:
        case = self._live.case.id if self._live else ""
        self._journal.append("waiting", case=case, phase=phase, left=seconds)
        try:
            return child.event(seconds)
        finally:
            self._journal.append("waiting", case=case, phase=phase, left=0)

    def _answer_before_yardstick(self, answer: dict[str, Any], phase: str) -> dict[str, Any]:
        """Return the answer that the child sent before a failure in the phase "yardstick".

        This phase times reference operations. In other phases, or if the child sent no answer, return
        ``answer``, which describes the failure.
        """
        settled = self._live.settled if self._live and phase == "yardstick" else None
        if settled is None:
            return answer
        return {**settled, "message": f"the reference operations were not timed: {answer['message']}"}

    def _crashed(self, child: Child, phase: str) -> _Reply:
        exit_status = child.exit(self._budgets.teardown)
        ended, log = self._ending(exit_status, phase), child.since_mark.text()
        where = f"in phase {phase}{last_call(log)}{self._after}"
        where = "while importing torch" if phase == "start" else where
        oom_killed = ended["oom_killed"]
        message = f"the process ended with {describe_exit(exit_status, oom_killed)} {where}"
        crash = _answer("crash", message, crash_cause(exit_status, oom_killed))
        answer = self._answer_before_yardstick(crash, phase)
        self._record(exit_status)
        return _Reply([answer], True, phase, None, log, ended)

    @property
    def _after(self) -> str:
        """For a check that repeats one computation, how long the child has run."""
        live = self._live
        if live is None or not CHECKS[live.case.check].once:
            return ""
        return f" after {duration(time.monotonic() - live.started)}"

    def _ending(self, exit_status: str, phase: str) -> dict[str, Any]:
        live = self._live
        before, after = (live.oom_kills if live else {}), oom_kills()
        return {
            "status": exit_status, "phase": phase, "after": live.last_event if live else None,
            "oom_killed": killed_for_memory(before, after),
        }  # fmt: skip

    def _hung(self, child: Child, phase: str, doing: str, budget: float) -> _Reply:
        stuck = stuck_at(child.pid)
        child.dump_stacks()
        log = child.since_mark.text()
        exit_status = child.kill()
        ended = self._ending(exit_status, phase)
        message = f"no answer in {budget:g} s in phase {phase}{last_call(log)}{self._after}, {doing}"
        answer = self._answer_before_yardstick(
            {**_answer("hang", message, "timeout"), "evidence": stuck}, phase
        )
        self._record(exit_status)
        return _Reply([answer], True, phase, doing, log, ended)

    def _end_child(self, at_once: bool = False) -> None:
        if self._live:
            child = self._live.child
            exit_status = child.kill(grace=0.2) if at_once else child.close(self._budgets.teardown)
            self._record(exit_status, after_last_answer=not at_once)

    def _record(self, exit_status: str, after_last_answer: bool = False) -> None:
        live, self._live = self._live, None
        if live is None:
            return
        if exit_status != "unkillable":
            self._guardian.forget(live.child.pid)
        trial = Trial(
            live.id, live.case.device, live.case.setting, live.child.start_method,
            exit_status, after_last_answer and exit_status != "0", live.child.log.text(),
            round(time.monotonic() - live.started, 3), live.library,
            {name: tuple(paths) for name, paths in live.mapped.items()},
        )  # fmt: skip
        self._journal.append("trial", trial=trial)
        if exit_status == "unkillable":
            self._journal.append("wedged", device=live.case.device)

    def _device_answers(self, case: Case) -> bool:
        """Return True if a small check in a new child shows that the device still responds."""
        check = "elementwise" if self._targets[case.device].torch else "rocblas-direct"
        canary = Case(case.device, "default", check, "float32")
        before = self._journal.find(canary.id)
        answered_before = before is not None and before.works
        for _ in range(2):
            if self._journal.wedged(case.device):
                return False
            reply = self._reply(canary)
            self._end_child()
            # If this check did not pass earlier in the run, an error proves nothing, but a hang proves
            # that the device is lost.
            if reply.state in ("pass", "n/a") or (reply.state != "hang" and not answered_before):
                return True
        return False

    def _works_by_default(self, case: Case) -> bool:
        found = self._journal.find(replace(case, setting="default").id)
        return found is not None and found.works

    def _made(self, case: Case, replies: list[_Reply], trials: list[str]) -> Outcome:
        answers = [answer for reply in replies for answer in reply.answers]
        last, reply = answers[-1], replies[-1]
        states = [answer["state"] for answer in answers]
        state, message = last["state"], last["message"]
        if "pass" in states and set(states) != {"pass"}:
            failed = [answer for answer in answers if answer["state"] != "pass"]
            state = "flaky"
            message = f"{len(failed)} of {len(answers)} tries failed: {failed[-1]['message']}"
        target, backend = self._targets[case.device], self._backend(case)
        reading = backend.read(reply.log)
        ran = reading if case.check.startswith((*CONVOLUTIONS, "solver")) else Reading()
        solver, cause = ran.implementation or last.get("solver"), last["cause"]
        algorithm = ran.algorithm or last.get("algorithm")
        workspace = ran.workspace_bytes if ran.implementation else last.get("workspace_bytes")
        forced = self._setting(case).solver
        limits_solvers = any(is_switch(name, value) for name, value in self._setting(case).env.items())
        if forced:
            absent = reason_not_tested(forced, state, reading)
            if absent:
                state, message, cause = "n/a", absent, None
        elif limits_solvers and self._works_by_default(case) and had_no_solver(state, reading):
            message = f"{message}; no solver that this setting allows applies to this problem"
        elif state == "pass" and solver and backend.is_fallback(solver):
            state, message = "slow", f"{solver} is {backend.library}'s last resort"
        evidence = [message] if message else []
        if state not in ("pass", "n/a"):
            evidence += evidence_of(reply.log, reading, last["evidence"])
        overridden = isa_of_override(self._setting(case).env.get(OVERRIDE, ""))
        return Outcome(
            id=case.id, device=case.device, setting=case.setting, check=case.check,
            rung=case.rung, state=state, trial=trials[-1], native_isa=target.native_isa,
            effective_isa=overridden or target.effective_isa, problem=case.problem, direction=case.direction,
            dtype=case.dtype, phase=reply.phase, activity=reply.activity, cause=cause,
            attempts=tuple(
                Attempt(answer["state"], trial, answer["message"], answer["timings"].get("seconds", 0.0))
                for answer, trial in zip(answers, trials)
            ),
            solver=solver, algorithm=algorithm, workspace_bytes=workspace, find_db=ran.find_db,
            timings=last["timings"], numerics=last["numerics"], memory=last["memory"],
            ending=reply.ending, evidence=tuple(evidence),
        )  # fmt: skip


def _answer(state: str, message: str, cause: str) -> dict[str, Any]:
    empty: dict[str, Any] = {"timings": {}, "numerics": {}, "memory": {}, "evidence": []}
    return {"state": state, "message": message, "cause": cause, **empty}


def merge_starts(cold: Sequence[Outcome], warm: Sequence[Outcome]) -> Outcome:
    """Return the outcome of the last start, with the attempts and the median times of all starts."""
    last = (warm if len(warm) == len(cold) else cold)[-1]
    made = [outcome for pair in zip(cold, warm) for outcome in pair]
    made += cold[len(warm) :]
    attempts = tuple(attempt for outcome in made for attempt in outcome.attempts)
    timings: dict[str, float] = {"seconds": sum(attempt.seconds for attempt in attempts)}
    if all("first_call" in outcome.timings for outcome in made) and warm:
        for word, outcomes in (("cold", cold), ("warm", warm)):
            first = [outcome.timings["first_call"] for outcome in outcomes]
            timings.update({f"{word}_first_call": median(first), f"{word}_starts": len(first)})
            timings.update({f"{word}_first_call_min": min(first), f"{word}_first_call_max": max(first)})
        for name, reduced in (("steady", median), ("steady_p10", min), ("steady_p90", max)):
            timings[name] = reduced([outcome.timings[name] for outcome in made])
    evidence = last.evidence
    if last is not cold[-1] and last.fails:
        evidence = (*evidence[:1], "in a process that found filled databases and caches", *evidence[1:])
    return replace(last, attempts=attempts, timings=timings, evidence=evidence)
