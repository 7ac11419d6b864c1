"""Plan of ``rocmprobe check``: a few small cases, simpler checks first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.plan import Request, cases_under, native_problems
from rocmprobe.engine.targets import Device
from rocmprobe.model.options import RunOptions
from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import Outcome, Results, Setting

#: Number of convolution problems tested in float32, and in each other dtype.
_FLOAT32_PROBLEMS, _OTHER_PROBLEMS = 2, 1
#: Simpler checks that run before convolution under every setting, in this order.
_BELOW = ("copy", "elementwise", "gemm")


def cases_of(
    target: Device, setting: Setting, purpose: str, results: Optional[Results]
) -> dict[Case, Optional[float]]:
    """Return the cases to run, in order, each with the seconds of its first call in an earlier run.

    The cases test copy, elementwise operators, gemm, convolution and batch norm. Convolution and gemm are
    also tested in the other dtypes for which ``results`` recommend ``setting``.

    If ``results`` recommend ``setting``, leave out cases that failed there, but keep float32 convolution.
    """
    follows = results is not None and results.recommended == setting.name
    known = {outcome.id: outcome for outcome in results.outcomes} if results else {}
    found: dict[Case, Optional[float]] = {}
    for case in _cases(target, setting, purpose, results if follows else None):
        before = _earlier_outcome(case, known)
        failed = before is not None and (before.fails or before.state == "blocked")
        if follows and failed and not (case.check == "convolution" and case.dtype == "float32"):
            continue
        found[case] = before.timings.get("first_call") if before and before.works else None
    return found


def _earlier_outcome(case: Case, known: Mapping[str, Outcome]) -> Optional[Outcome]:
    under_default = case.id.replace(f"/{case.setting}/", "/default/", 1)
    return known.get(case.id) or (known.get(under_default) if case.check in _BELOW else None)


def _cases(target: Device, setting: Setting, purpose: str, results: Optional[Results]) -> Iterator[Case]:
    # Some settings run only if ``default`` fails, unless the options name them.
    options = RunOptions(purpose=purpose, settings=f"{setting.name},")
    chosen = _problems(setting, options, results)

    def simple(check: str, dtype: str = "float32") -> Iterator[Case]:
        yield from cases_under(Request(check, dtypes=(dtype,)), target, setting, options)

    def convolution(problems: Sequence[Problem]) -> Iterator[Case]:
        request = Request("convolution", problems="native", directions=True)
        yield from cases_under(request, target, setting, options, problems)

    for check in _BELOW:
        yield from simple(check)
    yield from convolution([each for each in chosen if each.dtype == (setting.dtype or "float32")])
    yield from simple("batch-norm" if purpose == "training" else "batch-norm-eval")
    for dtype in _other_dtypes(setting, purpose, results):
        yield from simple("gemm", dtype)
        yield from convolution([each for each in chosen if each.dtype == dtype][:_OTHER_PROBLEMS])


def _problems(setting: Setting, options: RunOptions, results: Optional[Results]) -> tuple[Problem, ...]:
    """Return a few small convolution problems, preferably from ``results``."""
    correct = {
        str(each.problem)
        for each in (results.outcomes if results else ())
        if each.check == "convolution" and each.setting == setting.name and each.works
    }
    # Problems from ``results`` already have the setting's memory format and dtype.
    candidates = [parse_problem(text) for text in correct] or native_problems(options, setting)
    taken: list[Problem] = []
    for problem in sorted(candidates, key=lambda problem: (problem.flops, problem.text)):
        most = _FLOAT32_PROBLEMS if problem.dtype == "float32" else _OTHER_PROBLEMS
        if problem not in taken and sum(each.dtype == problem.dtype for each in taken) < most:
            taken.append(problem)
    return tuple(taken)


def _other_dtypes(setting: Setting, purpose: str, results: Optional[Results]) -> tuple[str, ...]:
    per = results.recommendation.per if results and results.recommendation else {}
    found = (key.partition("/") for key, answer in per.items() if answer.get("setting") == setting.name)
    return tuple(dtype for dtype, _, of in found if of == purpose and dtype != "float32")
