"""Which questions a check asks, in which order, and under which setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.options import RunOptions
from rocmprobe.engine.plan import Request, cases_under, native_problems
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.layers import refuse_underived
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import (
    BadInput,
    Outcome,
    Results,
    Setting,
)

#: Problems of convolution in float32, and in each other dtype.
_FLOAT32_PROBLEMS, _OTHER_PROBLEMS = 2, 1
#: Checks below convolution, which every setting needs, lowest first.
_BELOW = ("copy", "elementwise", "gemm")


@dataclass(frozen=True)
class Question:
    """A case, and the seconds that its first call took in the results, None where that is not known."""

    case: Case
    usual: Optional[float] = None


def setting_of(name: str, target: Device, torch: Optional[str], results: Optional[Results]) -> Setting:
    """The setting ``name`` of the backend of ``target``, for PyTorch ``torch``. One that runs derive on the
    machine is as ``results`` have it.

    Raises BadInput for an unknown one, and for a derived one that the results do not hold.
    """
    found = next((each for each in results.settings if each.name == name), None) if results else None
    if found and found.derived:
        refuse_underived(found, "check")
        return found
    try:
        rows = settings_for(target.backend, f"{name},", torch, ("torch",))
    except BadInput as error:
        raise BadInput(str(error).replace("--settings:", "--setting:", 1)) from error
    setting = next(each for each in rows if each.name == name)
    if setting.undecided:
        raise BadInput(f"--setting {name}: a run finds out what it is; name the results of one that did")
    return setting


def questions(
    target: Device, setting: Setting, purpose: str, results: Optional[Results], own: tuple[str, ...] = ()
) -> tuple[Question, ...]:
    """What is asked of ``target`` under ``setting``: the ladder, convolution in float32 (and backward where
    ``purpose`` is training), batch norm, and convolution in every other dtype for which ``results`` recommend
    the same setting. Small problems come first; ``own`` are those to ask instead.

    What failed in results that recommend the setting all the same is not asked: it is not needed.
    """
    recommended = results.recommendation if results else None
    follows = recommended is not None and recommended.configuration.setting == setting.name
    known = {outcome.id: outcome for outcome in results.outcomes} if results else {}
    found = []
    for case in _cases(target, setting, purpose, results if follows else None, own):
        before = _before(case, known)
        if follows and _failed(before) and not (case.check == "convolution" and case.dtype == "float32"):
            continue
        usual = before.timings.get("first_call") if before and before.works else None
        found.append(Question(case, usual))
    return tuple(found)


def _before(case: Case, known: dict[str, Outcome]) -> Optional[Outcome]:
    """What the same question came to in the results; the ladder is asked there under ``default`` alone."""
    under_default = case.id.replace(f"/{case.setting}/", "/default/", 1)
    return known.get(case.id) or (known.get(under_default) if case.check in _BELOW else None)


def _failed(outcome: Optional[Outcome]) -> bool:
    return outcome is not None and (outcome.fails or outcome.state == "blocked")


def _cases(
    target: Device, setting: Setting, purpose: str, results: Optional[Results], own: tuple[str, ...]
) -> Iterator[Case]:
    # Named, so that a setting that runs try only where ``default`` fails has no such condition here.
    options = RunOptions(purpose=purpose, settings=f"{setting.name},")
    chosen = _problems(setting, options, results, own)

    def simple(check: str, dtype: str = "float32") -> Iterator[Case]:
        yield from cases_under(Request(check, dtypes=(dtype,)), target, "torch", setting, options)

    def convolution(problems: Sequence[Problem]) -> Iterator[Case]:
        request = Request("convolution", problems="native", directions=True)
        yield from cases_under(request, target, "torch", setting, options, problems)

    for check in _BELOW:
        yield from simple(check)
    yield from convolution([each for each in chosen if own or each.dtype == (setting.dtype or "float32")])
    yield from simple("batch-norm" if purpose == "training" else "batch-norm-eval")
    for dtype in _other_dtypes(setting, purpose, results):
        yield from simple("gemm", dtype)
        yield from convolution([each for each in chosen if each.dtype == dtype][:_OTHER_PROBLEMS])


def _problems(
    setting: Setting, options: RunOptions, results: Optional[Results], own: tuple[str, ...]
) -> tuple[Problem, ...]:
    """Those that were right in the results, else those of level quick; the small ones first, few of each
    dtype."""
    if own:
        return tuple(map(parse_problem, own))
    right = {
        str(each.problem)
        for each in (results.outcomes if results else ())
        if each.check == "convolution" and each.setting == setting.name and each.works
    }
    # What was right under the setting has its memory format and dtype.
    asked = [parse_problem(text) for text in right] or native_problems(options, setting)
    taken: list[Problem] = []
    for problem in sorted(asked, key=lambda problem: (problem.flops, problem.text)):
        most = _FLOAT32_PROBLEMS if problem.dtype == "float32" else _OTHER_PROBLEMS
        if problem not in taken and sum(each.dtype == problem.dtype for each in taken) < most:
            taken.append(problem)
    return tuple(taken)


def _other_dtypes(setting: Setting, purpose: str, results: Optional[Results]) -> tuple[str, ...]:
    """The dtypes besides float32 for which the results recommend this setting, too."""
    per = results.recommendation.per if results and results.recommendation else {}
    found = (key.partition("/") for key, answer in per.items() if answer.get("setting") == setting.name)
    return tuple(dtype for dtype, _, of in found if of == purpose and dtype != "float32")
