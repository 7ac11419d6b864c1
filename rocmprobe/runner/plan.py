"""From the questions that suites ask to cases: devices x settings x dtypes or problems x directions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Optional

from rocmprobe.cases import Case
from rocmprobe.model import DIRECTIONS, Setting
from rocmprobe.problems import Problem, parse_problem, problems
from rocmprobe.runner.options import RunOptions
from rocmprobe.runner.targets import Target
from rocmprobe.solvers import by_name

_DRIVER = "torch"


@dataclass(frozen=True)
class Question:
    """What ``@pytest.mark.asks`` says: a check, for which settings ("every", names, or "forced" for those
    that force one solver each), and either dtypes or a set of problems (a key of ``data/problems.toml``),
    with each direction apart or not."""

    check: str
    settings: tuple[str, ...] = ("default",)
    dtypes: tuple[str, ...] = ("float32",)
    problems: str = ""
    directions: bool = False


def cases(
    question: Question, target: Target, settings: tuple[Setting, ...], options: RunOptions
) -> Iterator[Case]:
    """The cases of ``question`` on one target, in the order in which they should be settled."""
    for setting in settings:
        if setting.solver:
            if "forced" in question.settings:
                yield from _sweep(question, target, setting, options)
            continue
        if not _concerns(question, setting):
            continue
        for problem in _problems(question.problems, options, setting) if question.problems else (None,):
            for dtype in (problem.dtype,) if problem else question.dtypes:
                for direction in _question_directions(question, options):
                    yield Case(
                        target.device, _DRIVER, setting.name, question.check, dtype,
                        problem.text if problem else None, direction,
                        _needs(question.check, target.device, setting, options),
                    )  # fmt: skip


def _concerns(question: Question, setting: Setting) -> bool:
    """Whether the question is asked under ``setting``. One that changes the problems is asked about problems
    alone, a control in another dtype about right numbers alone; the user's own databases are never cold."""
    if "every" not in question.settings and setting.name not in question.settings:
        return False
    if setting.changes_problems and not question.problems:
        return False
    if setting.dtype and question.check != "convolution":
        return False
    return not (setting.inherit_environment and question.check == "start-up")


def _sweep(question: Question, target: Target, setting: Setting, options: RunOptions) -> Iterator[Case]:
    """The cases of one forced solver: what it may run at all, asked where ``default`` fails or all is asked
    for. At level quick, of each dtype the first problem alone."""
    chosen = _problems(question.problems, options, setting)
    if options.level == "quick":
        chosen = tuple({problem.dtype: problem for problem in reversed(chosen)}.values())[::-1]
    solver = by_name()[setting.solver]
    for problem in chosen:
        for direction in _directions(options):
            if not solver.may_run(problem.text, direction, target.effective_isa):
                continue
            what = (problem.dtype, problem.text, direction)
            default = Case(target.device, _DRIVER, "default", "convolution", *what)
            yield Case(
                target.device, _DRIVER, setting.name, question.check, *what,
                _needs("convolution", target.device, setting, options),
                () if options.settings == "all" else (default.id,),
            )  # fmt: skip


def _directions(options: RunOptions) -> tuple[str, ...]:
    return DIRECTIONS[:1] if options.purpose == "inference" else DIRECTIONS


def _question_directions(question: Question, options: RunOptions) -> tuple[Optional[str], ...]:
    """Each direction apart where that is asked. What starts up is an iteration of training, or inference."""
    if question.directions or (question.check == "start-up" and options.purpose == "inference"):
        return _directions(options)
    return (None,)


def _problems(purpose: str, options: RunOptions, setting: Setting) -> tuple[Problem, ...]:
    """The user's own problems where they are given, else those of the level; as ``setting`` has them."""
    if options.problems and purpose != "gradients":
        asked = tuple(parse_problem(text) for text in options.problems)
    else:
        asked = problems(options.level, purpose)
    if not setting.changes_problems:
        return asked
    return tuple(dict.fromkeys(filter(None, (_changed(problem, setting) for problem in asked))))


def _changed(problem: Problem, setting: Setting) -> Optional[Problem]:
    """``problem`` in the dtype and memory format of ``setting``; None where it has those already, which
    ``default`` asks about, or cannot have them."""
    if setting.channels_last and problem.rank != 2:
        return None
    changed = replace(
        problem,
        dtype=setting.dtype or problem.dtype,
        channels_last=setting.channels_last or problem.channels_last,
    )
    return None if changed == problem else changed


def _needs(check: str, device: str, setting: Setting, options: RunOptions) -> tuple[str, ...]:
    """The rungs a check stands on. The ``cpu`` setting stands on nothing of the GPU."""
    if setting.device == "cpu":
        return ()

    def ladder(name: str) -> str:
        return Case(device, _DRIVER, "default", name, "float32").id

    if check == "copy":
        return ()
    if check == "elementwise":
        return (ladder("copy"),)
    if check in ("gemm", "im2col", "batch-norm"):
        return (ladder("elementwise"),)
    in_library = setting.vendor_library and not setting.bypass and setting.dtype is None
    own_gemm = () if in_library else (ladder("gemm"),)
    if check == "convolution":
        return (ladder("elementwise"), *own_gemm)
    same_setting = tuple(
        Case(device, _DRIVER, setting.name, "convolution", gate.dtype, gate.text, direction).id
        for gate in _problems("native", options, setting)[:1]
        for direction in _directions(options)
    )
    if check == "training-step":
        batch_norm = Case(
            device, _DRIVER, "default" if setting.vendor_library else "vendor-off", "batch-norm", "float32"
        )
        return (*same_setting, batch_norm.id, ladder("gemm"))
    return same_setting
