"""From the questions that suites ask to cases: devices x settings x dtypes or problems x directions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rocmprobe.cases import Case
from rocmprobe.model import DIRECTIONS, Setting
from rocmprobe.problems import Problem, parse_problem, problems
from rocmprobe.runner.options import RunOptions
from rocmprobe.runner.targets import Target
from rocmprobe.settings import drivers_of

#: What the driver capi answers, with the dtypes where a question names them; under every setting where the
#: answer counts for a setting.
_DIRECT = {
    "copy": ("float32",),
    "elementwise": ("float32",),
    "gemm": ("float32", "float16", "bfloat16", "float64"),
    "convolution": (),
    "batch-norm": ("float32",),
}


@dataclass(frozen=True)
class Question:
    """What ``@pytest.mark.asks`` says: a check, for which settings ("every" or names), and either
    dtypes or a set of problems (a key of ``data/problems.toml``), with each direction apart or not."""

    check: str
    settings: tuple[str, ...] = ("default",)
    dtypes: tuple[str, ...] = ("float32",)
    problems: str = ""
    directions: bool = False


def cases(
    question: Question, target: Target, settings: tuple[Setting, ...], options: RunOptions
) -> Iterator[Case]:
    """The cases of ``question`` on one target, in the order in which they should be settled."""
    for driver in target.drivers:
        asked = _directly(question) if driver == "capi" else question
        for setting in settings:
            named = "every" in asked.settings or setting.name in asked.settings
            if not named or driver not in drivers_of(setting):
                continue
            for problem in _problems(asked.problems, options) if asked.problems else (None,):
                for dtype in (problem.dtype,) if problem else asked.dtypes:
                    for direction in _directions(options) if asked.directions else (None,):
                        yield Case(
                            target.device, driver, setting.name, asked.check, dtype,
                            problem.text if problem else None, direction,
                            _needs(asked.check, target.device, driver, setting, options),
                        )  # fmt: skip


def _directly(question: Question) -> Question:
    """The question as it is put to the driver capi. Batch norm under every setting: without a training step
    nothing else tells whether a setting can train."""
    if question.check not in _DIRECT:
        return replace(question, settings=())
    every = question.check == "batch-norm" and "default" in question.settings
    return replace(
        question,
        settings=("every",) if every else question.settings,
        dtypes=_DIRECT[question.check] or question.dtypes,
    )


def _directions(options: RunOptions) -> tuple[str, ...]:
    return DIRECTIONS[:1] if options.purpose == "inference" else DIRECTIONS


def _problems(purpose: str, options: RunOptions) -> tuple[Problem, ...]:
    """The user's own problems where they are given, else those of the level."""
    if options.problems and purpose != "gradients":
        return tuple(parse_problem(text) for text in options.problems)
    return problems(options.level, purpose)


def _needs(check: str, device: str, driver: str, setting: Setting, options: RunOptions) -> tuple[str, ...]:
    """The rungs a check stands on. The ``cpu`` setting stands on nothing of the GPU."""
    if setting.device == "cpu":
        return ()

    def ladder(name: str) -> str:
        return Case(device, driver, "default", name, "float32").id

    if check == "copy":
        return ()
    if check == "elementwise":
        return (ladder("copy"),)
    if check in ("gemm", "im2col", "batch-norm"):
        return (ladder("elementwise"),)
    own_gemm = () if setting.vendor_library and not setting.bypass else (ladder("gemm"),)
    if check == "convolution":
        return (ladder("elementwise"), *own_gemm)
    same_setting = tuple(
        Case(device, driver, setting.name, "convolution", problem.dtype, problem.text, direction).id
        for problem in _problems("native", options)[:1]
        for direction in _directions(options)
    )
    if check == "training-step":
        batch_norm = Case(
            device, driver, "default" if setting.vendor_library else "vendor-off", "batch-norm", "float32"
        )
        return (*same_setting, batch_norm.id, ladder("gemm"))
    return same_setting
