"""Cold and warm starts. A first call happens once in a process, so its spread takes several processes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from rocmprobe.model.cases import Case
from rocmprobe.model.results import FAILING_STATES, Outcome, Setting
from rocmprobe.run.environment import picks_kernels_alone

#: How often a cold start and a warm one follow each other, as far as the budget goes. Where nothing but
#: chance decides, three warm ones are faster than three cold ones once in twenty times.
ROUNDS = 3


def folder(base: Path, case: Case) -> Path:
    """Where the databases of the child for ``case`` lie. Those of a setting are shared by its trials; a
    start-up has its own, which a cold start finds empty."""
    words = [
        case.device,
        case.driver,
        case.setting,
        *([str(case.problem)] if case.check == "start-up" else []),
    ]
    return _named(base, words)


def kernels_folder(base: Path, case: Case, setting: Setting) -> Path:
    """Where the kernels lie that the child for ``case`` compiles: one folder for all settings that change
    nothing about that, but for a start-up, which compiles its own."""
    if case.check == "start-up" or not picks_kernels_alone(setting):
        return folder(base, case)
    return _named(base, [case.device, case.driver, "kernels"])


def _named(base: Path, words: Sequence[str]) -> Path:
    # Compilers are started with these paths, some through a shell: solvers have names like "A<2-3>".
    return base / "_".join(re.sub(r"[^\w+.-]", "", word) for word in words)


def merged(cold: Sequence[Outcome], warm: Sequence[Outcome]) -> Outcome:
    """One outcome of all starts, in the order in which they were made: the last one, with the attempts of
    all, and times if all are right."""
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
    if last is not cold[-1] and last.state in FAILING_STATES:
        evidence = (*evidence[:1], "in a process that found filled databases and caches", *evidence[1:])
    return replace(last, attempts=attempts, timings=timings, evidence=evidence)
