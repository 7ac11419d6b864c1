"""The plan of a run: the cases that the suites request, their order, and their dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from rocmprobe.checks import CHECKS, MODELS, TRAINERS
from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.options import RunOptions
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.layers import NAME as BY_LAYER
from rocmprobe.knowledge.settings import drivers_of
from rocmprobe.knowledge.solvers import by_name
from rocmprobe.model.problem_matrix import problem_matrix
from rocmprobe.model.problems import LEVELS, Problem, parse_problem, problems
from rocmprobe.model.results import DIRECTIONS, Setting


@dataclass(frozen=True)
class Request:
    """The arguments of ``@pytest.mark.check``.

    ``settings`` are names of settings, "every", or "forced" for the settings that each force one solver.
    ``problems`` is a key of ``data/problems.toml`` or "matrix", and replaces ``dtypes``. If ``directions``,
    each direction is a case. If ``operators``, each operator of the installed torch is a case. ``level`` is
    the first level that includes the check.
    """

    check: str
    settings: tuple[str, ...] = ("default",)
    dtypes: tuple[str, ...] = ("float32",)
    problems: str = ""
    directions: bool = False
    operators: bool = False
    level: str = "quick"


def cases(
    request: Request, target: Device, settings: tuple[Setting, ...], options: RunOptions
) -> Iterator[Case]:
    """Yield the cases of ``request`` on one device, in the order in which they should run."""
    if not _requested_at(request, options):
        return
    for driver in target.drivers:
        requested = _directly(request) if driver == "capi" else _through_torch(request)
        for setting in settings:
            if driver in drivers_of(setting) and _concerns(requested, setting, options):
                yield from cases_under(requested, target, driver, setting, options)


def cases_under(
    request: Request,
    target: Device,
    driver: str,
    setting: Setting,
    options: RunOptions,
    chosen: Optional[Sequence[Problem]] = None,
) -> Iterator[Case]:
    """Yield the cases of ``request`` under one setting, even if the request names other settings.

    ``chosen`` problems replace the request's problems. They are in the form that ``setting`` needs.
    """
    native = native_problems(options, setting) if chosen is None else chosen
    form = Case(target.device, driver, setting.name, request.check, "")
    for case in _under(request, form, target, setting, options, chosen):
        yield replace(case, needs=_needs(case, setting, native, _directions(options)))


def native_problems(options: RunOptions, setting: Setting) -> tuple[Problem, ...]:
    """Return the problems of convolution that a run tests first, in the form that ``setting`` needs."""
    return _problems("native", options, setting)


def in_order(asked: Sequence[Case]) -> list[Case]:
    """Return the cases in the order in which they run: dependencies first, the cases of a trial together.

    First comes ``default``, on which all other settings depend. Then come the solvers, from which a setting
    is derived, then the other settings, then ``by-layer``, which is derived from the other settings.
    Measurements come last in each group, because they depend on correct results. Checks that can stop the
    machine end the run.
    """
    checks = list(CHECKS)
    trials: dict[str, int] = {}
    for case in asked:
        trials.setdefault(case.trial_key, len(trials))

    def place(case: Case) -> tuple[bool, int, bool, int, int]:
        rank = 0 if case.setting == "default" else 1 if case.check == "solver" else 2
        rank += case.setting == BY_LAYER
        check = CHECKS[case.check]
        return check.last, rank, check.exclusive, trials[case.trial_key], checks.index(case.check)

    return sorted(asked, key=place)


def _requested_at(request: Request, options: RunOptions) -> bool:
    """Return True if the run includes the request.

    The request's level decides, with two exceptions. A check that ``--only`` names runs at any level, and an
    estimate includes the models. For inference, no model is trained.
    """
    if request.check in (*TRAINERS, "soak") and options.purpose == "inference":
        return False
    named = request.check in options.only or (bool(options.estimate) and request.check in MODELS)
    return named or LEVELS.index(options.level) >= LEVELS.index(request.level)


def _under(
    request: Request,
    form: Case,
    target: Device,
    setting: Setting,
    options: RunOptions,
    chosen: Optional[Sequence[Problem]],
) -> Iterator[Case]:
    """Yield the cases of a request under one setting, made from ``form``, without their dependencies."""
    if setting.solver:
        yield from _sweep(request, form, target, setting, options)
        return
    subjects: Sequence[Optional[Problem]] = (None,)
    if request.problems:
        few = CHECKS[request.check].own_process
        subjects = _problems(request.problems, options, setting, few) if chosen is None else chosen
    for problem in subjects:
        for dtype in (problem.dtype,) if problem else request.dtypes:
            for direction in _request_directions(request, options):
                text = problem.text if problem else None
                case = replace(form, dtype=dtype, problem=text, direction=direction)
                if request.operators and target.operators:
                    yield from (replace(case, operator=name) for name in target.operators.get(dtype, ()))
                    continue
                if setting.by_name and not _wanted(setting, options):
                    case = replace(case, if_failed=(replace(case, setting="default").id,))
                yield case


def _wanted(setting: Setting, options: RunOptions) -> bool:
    """Return True if the user requests ``setting`` even if ``default`` passes."""
    return options.settings == "all" or setting.name in options.settings.replace(" ", "").split(",")


def _sweep(
    request: Request, form: Case, target: Device, setting: Setting, options: RunOptions
) -> Iterator[Case]:
    """Yield the cases that a forced solver supports, to run if ``default`` fails or all settings are wanted.

    Level quick tests only the first problem of each dtype, made small.
    """
    chosen = _problems(request.problems, options, setting)
    if options.level == "quick":
        chosen = tuple({problem.dtype: problem for problem in reversed(chosen)}.values())[::-1]
    solver = by_name()[setting.solver]
    for problem in chosen:
        swept = _small(problem) if options.level == "quick" else problem
        for direction in _directions(options):
            if not solver.may_run(swept.text, direction, target.effective_isa):
                continue
            case = replace(form, dtype=problem.dtype, problem=swept.text, direction=direction)
            default = replace(case, setting="default", check="convolution", problem=problem.text)
            yield replace(case, if_failed=() if options.settings == "all" else (default.id,))


def _small(problem: Problem) -> Problem:
    """Return the same layer for at most two images of 28 pixels a side, or of the size of the filter.

    The layer decides which kernel runs. The images decide how long the kernel and its reference take.
    """
    sizes = zip(problem.input_size, problem.kernel, problem.dilation)
    cut = tuple(min(size, max(28, dilation * (kernel - 1) + 1)) for size, kernel, dilation in sizes)
    return replace(problem, batch=min(problem.batch, 2), input_size=cut)


def _directly(request: Request) -> Request:
    """Return the request for the driver capi.

    It tests batch norm under every setting, because capi has no training step that would show if a setting
    can train.
    """
    dtypes = CHECKS[request.check].capi_dtypes
    if dtypes is None:
        return replace(request, settings=())
    every = request.check == "batch-norm" and "default" in request.settings
    return replace(
        request,
        settings=("every",) if every else request.settings,
        dtypes=dtypes or request.dtypes,
    )


def _through_torch(request: Request) -> Request:
    """Return the request for the driver torch, without settings if only capi runs the check."""
    return replace(request, settings=()) if CHECKS[request.check].function is None else request


def _concerns(request: Request, setting: Setting, options: RunOptions) -> bool:
    """Return True if the request applies to ``setting``.

    A setting that changes the problems runs only checks of problems. A setting with its own dtype runs only
    convolution. A setting that uses the user's own databases runs no cold start. `rocmprobe soak` names its
    setting.
    """
    if setting.solver:
        return "forced" in request.settings
    if request.check == "soak" and options.minutes:
        return _wanted(setting, options) and not setting.changes_problems
    every = "every" in request.settings and not setting.by_name
    if not every and setting.name not in request.settings:
        return False
    if setting.changes_problems and not request.problems:
        return False
    if setting.dtype and request.check != "convolution":
        return False
    return not (setting.inherit_environment and request.check == "start-up")


def _directions(options: RunOptions) -> tuple[str, ...]:
    return DIRECTIONS[:1] if options.purpose == "inference" else DIRECTIONS


def _request_directions(request: Request, options: RunOptions) -> tuple[Optional[str], ...]:
    """Return the directions of a request, or None for all in one case.

    Training is timed in all directions.
    """
    timed = request.check in ("start-up", "throughput")
    if request.directions or (timed and options.purpose == "inference"):
        return _directions(options)
    return (None,)


def _problems(purpose: str, options: RunOptions, setting: Setting, few: bool = False) -> tuple[Problem, ...]:
    """Return the user's problems, or else the problems of the level, in the form that ``setting`` needs.

    Given problems also replace the matrix, because the native suite runs them under every setting. If
    ``few``, use only the heaviest convolutions of a recorded program.
    """
    if purpose == "matrix":
        requested = () if options.problems else problem_matrix(options.level)
    elif options.shapes and few:
        most = len(problems(options.level, purpose))
        requested = tuple(parse_problem(text) for text in options.shapes.heaviest(most))
    elif options.problems and purpose not in ("gradients", "gradient-flow", "kinds"):
        requested = tuple(parse_problem(text) for text in options.problems)
    else:
        requested = problems(options.level, purpose)
    if not setting.changes_problems:
        return requested
    own = bool(options.problems)
    return tuple(dict.fromkeys(filter(None, (_changed(problem, setting, own) for problem in requested))))


def _changed(problem: Problem, setting: Setting, own: bool) -> Optional[Problem]:
    """Return ``problem`` in the dtype and memory format of ``setting``.

    Return None if the problem cannot have this dtype and format. Also return None if the problem has them
    already, because then ``default`` tests the problem. The user's ``own`` problem is kept even if it is
    channels-last already, because a program is judged by all its convolutions.
    """
    if setting.channels_last and (problem.rank != 2 or problem.noncontiguous):
        return None
    changed = replace(
        problem,
        dtype=setting.dtype or problem.dtype,
        channels_last=setting.channels_last or problem.channels_last,
    )
    as_it_is = own and setting.channels_last
    return changed if changed != problem or as_it_is else None


def _needs(
    case: Case, setting: Setting, native: Sequence[Problem], directions: Sequence[str]
) -> tuple[str, ...]:
    """Return the ids of the cases that ``case`` depends on. If one of these cases fails, ``case`` is blocked.

    The setting ``cpu`` depends on nothing of the GPU. ``native`` are the problems and ``directions`` the
    directions that the run tests under ``setting``.
    """
    if setting.device == "cpu":
        return ()
    requires = CHECKS[case.check].requires
    # The driver capi tests the rungs below GEMM once, with bytes. No rung is tested with integers.
    dtype = "float32" if case.driver == "capi" or case.dtype.startswith("int") else case.dtype

    def gate(check: str, of: str, its_dtype: str) -> str:
        gated = replace(case, setting=of, check=check, dtype=its_dtype, problem=None)
        return replace(gated, direction=None, operator=None).id

    in_library = setting.vendor_library and not setting.bypass and setting.dtype is None
    other_layers = "default" if setting.vendor_library else "vendor-off"
    if setting.by_layer:
        other_layers = setting.name
    return (
        *_convolutions(requires.convolution, case, native, directions),
        *(gate(check, "default", dtype) for check in requires.below),
        *(gate(check, "default", dtype) for check in (() if in_library else requires.outside)),
        *(gate(check, other_layers, dtype) for check in requires.beside),
        *(
            gate(check, setting.name, "float32")
            for check in requires.float32
            if (check, case.dtype) != (case.check, "float32")
        ),
        *(gate(check, setting.name, dtype) for check in requires.autocast if dtype != "float32"),
    )


def _convolutions(
    which: str, case: Case, native: Sequence[Problem], directions: Sequence[str]
) -> tuple[str, ...]:
    """Return the ids for ``Requires.convolution``.

    The ids name convolutions of one native problem, which is the first of the same dtype, or else the first
    of all.

    If ``which`` is "own" and the dtype is float64, there are no ids. PyTorch does not send such a convolution
    to MIOpen, so it can pass where native problems fail.
    """
    if not which or (which == "own" and case.dtype == "float64"):
        return ()
    alike = [problem for problem in native if problem.dtype == case.dtype] or list(native)
    wanted = {"own": (case.direction,), "fwd": DIRECTIONS[:1]}.get(which, tuple(directions))
    return tuple(
        replace(case, check="convolution", dtype=gate.dtype, problem=gate.text, direction=direction).id
        for gate in alike[:1]
        for direction in wanted
    )
