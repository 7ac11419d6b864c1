"""Outcomes of cases: made from the replies of workers, or without a trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Optional

from rocmprobe.backends import Backend
from rocmprobe.checks import CONVOLUTIONS
from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.conversation import Reply
from rocmprobe.engine.evidence import evidence_of
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.gpus import OVERRIDE, isa_of_override
from rocmprobe.knowledge.miopen_log import Reading, had_no_solver, reason_not_tested
from rocmprobe.knowledge.solvers import is_switch
from rocmprobe.model.results import NO_SOLVER, Attempt, Outcome, Setting
from rocmprobe.model.results_file import to_json


def without_trial(case: Case, target: Device, state: str, failure: Optional[str], *evidence: str) -> Outcome:
    """Return an outcome for a case that did not run."""
    return Outcome(
        id=case.id, device=case.device, setting=case.setting, check=case.check,
        rung=case.rung, state=state, native_isa=target.native_isa, effective_isa=target.effective_isa,
        problem=case.problem, direction=case.direction, dtype=case.dtype, failure=failure, evidence=evidence,
    )  # fmt: skip


def outcome_of(
    case: Case, replies: Sequence[Reply], target: Device, setting: Setting, backend: Backend
) -> Outcome:
    """Return the outcome of a case from the replies to all its tries."""
    tries = [(result, reply.trial) for reply in replies for result in reply.answers]
    last, reply = tries[-1][0], replies[-1]
    state, message, failure = last.state, last.message, last.failure
    failed = [result for result, _ in tries if result.state != "pass"]
    if failed and len(failed) < len(tries):
        state = "flaky"
        message = f"{len(failed)} of {len(tries)} tries failed: {failed[-1].message}"
    reading = backend.read(reply.log)
    ran = reading if case.check.startswith((*CONVOLUTIONS, "solver")) else Reading()
    solver = ran.implementation or last.solver
    if setting.solver:
        absent = reason_not_tested(setting.solver, state, reading)
        if absent:
            state, message, failure = "n/a", absent, None
    elif _limits_solvers(setting) and had_no_solver(state, reading):
        state, failure = "n/a", NO_SOLVER
        message = "no solver that this setting allows applies to this problem"
    elif state == "pass" and solver and backend.is_fallback(solver):
        state, message = "slow", f"{solver} is {backend.library}'s last resort"
    evidence = [message] if message else []
    if state not in ("pass", "n/a"):
        evidence += evidence_of(reply.log, reading, last.evidence)
    outcome = without_trial(case, target, state, failure, *evidence)
    return replace(
        outcome,
        trial=reply.trial,
        effective_isa=isa_of_override(setting.env.get(OVERRIDE, "")) or outcome.effective_isa,
        phase=reply.phase,
        activity=reply.activity,
        attempts=tuple(
            Attempt(result.state, trial, result.message, result.timings.get("seconds", 0.0))
            for result, trial in tries
        ),
        solver=solver,
        algorithm=ran.algorithm or last.algorithm,
        workspace_bytes=ran.workspace_bytes if ran.implementation else last.workspace_bytes,
        find_db=ran.find_db,
        # An error can be NaN or infinite, which JSON lacks.
        timings=to_json(last.timings),
        numerics=to_json(last.numerics),
        memory=to_json(last.memory),
        ending=reply.ending,
    )


def _limits_solvers(setting: Setting) -> bool:
    return any(is_switch(name, value) for name, value in setting.env.items())


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
