"""Working counterparts of a failure: a similar problem, and the same case with other variables."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Optional

from rocmprobe.model.problems import Problem
from rocmprobe.model.results import Outcome, Results, Setting
from rocmprobe.model.size_search import same_but_size, size_of
from rocmprobe.report.escape import code
from rocmprobe.report.issue.failure import Failure, problem_of, same_case_outcomes
from rocmprobe.report.repro.script import child_variables, driver_line, removed_variables

NO_DRIVER_LINE = "no MIOpenDriver line"


def contrast(results: Results, failure: Failure) -> Iterator[str]:
    """Yield the MIOpenDriver line of a similar problem that works, and the variables that cure the failure.

    Yield only what the run tested.
    """
    line = _working_line(results, failure)
    if line:
        yield f"Works under the same setting: {code(line, 1500)}"
    cure = _cure(results, failure)
    if cure:
        setting, assignments = cure
        databases = failure.setting.inherit_environment and not setting.inherit_environment
        where = code(setting.name, 60) + (", with empty databases and caches" if databases else "")
        yield f"Works with other variables (setting {where}): {code(assignments, 1500)}"


def _working_line(results: Results, failure: Failure) -> Optional[str]:
    failing, problem = failure.outcome, problem_of(failure.outcome)
    if failure.driver.startswith(NO_DRIVER_LINE) or problem is None:
        return None
    tests = [each for each in results.outcomes if each.works and _test(each) == _test(failing)]
    similar = [(_distance(problem, other), each) for each in tests if (other := problem_of(each))]
    similar.sort(key=lambda pair: pair[0])
    lines = (driver_line(results, each) for _, each in similar)
    return next((line for line in lines if not line.startswith(NO_DRIVER_LINE)), None)


def _test(outcome: Outcome) -> tuple[object, ...]:
    return outcome.device, outcome.setting, outcome.check, outcome.direction, outcome.dtype


def _distance(problem: Problem, other: Problem) -> tuple[int, ...]:
    """Return a sort key: the largest smaller size first, then problems that differ in the fewest fields."""
    smaller = same_but_size(problem, other) and size_of(other) < size_of(problem)
    names = [field.name for field in fields(Problem)]
    different = sum(getattr(problem, name) != getattr(other, name) for name in names)
    return not smaller, different, abs(problem.flops - other.flops)


def _cure(results: Results, failure: Failure) -> Optional[tuple[Setting, str]]:
    """Return a setting under which the failed case works, and the variables that make the difference.

    Prefer the recommended setting, then the fewest variables. Return None if no variables cure the case.
    """
    found = []
    for name, outcome in same_case_outcomes(results, failure.outcome).items():
        setting = results.setting(name)
        if outcome.works and setting and _differs_in_variables_only(setting, failure.setting):
            changed = _assignments(results, failure, outcome, setting)
            if changed:
                found.append((name != results.recommended, len(changed), setting, changed))
    if not found:
        return None
    *_, setting, changed = min(found, key=lambda each: each[:2])
    return setting, " ".join(changed)


def _differs_in_variables_only(setting: Setting, other: Setting) -> bool:
    one, two = (
        (each.vendor_library, each.bypass, each.device, each.pytorch_layers, dict(each.torch))
        for each in (setting, other)
    )
    return one == two and not setting.bypass


def _assignments(results: Results, failure: Failure, outcome: Outcome, setting: Setting) -> list[str]:
    before: Mapping[str, str] = dict(child_variables(results, failure.outcome, failure.setting))
    after: Mapping[str, str] = dict(child_variables(results, outcome, setting))
    gone = [*before, *removed_variables(results, setting)]
    kept = {*after, *removed_variables(results, failure.setting)}
    unset = [name for name in dict.fromkeys(gone) if name not in kept]
    return [
        *(f"env -u {name}" if name == unset[0] else f"-u {name}" for name in unset),
        *(f"{name}={shlex.quote(value)}" for name, value in after.items() if before.get(name) != value),
    ]
