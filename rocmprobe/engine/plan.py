"""The plan of a run: its cases, their order and their dependencies."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from rocmprobe.checks import CHECKS, DIRECT, MODELS
from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.settings import DEFAULT
from rocmprobe.knowledge.solvers import by_name
from rocmprobe.model.options import RunOptions
from rocmprobe.model.problem_matrix import problem_matrix
from rocmprobe.model.problems import LEVELS, Problem, parse_problem, problems
from rocmprobe.model.results import DIRECTIONS, BadInput, Setting
from rocmprobe.text.suggestions import did_you_mean


@dataclass(frozen=True)
class Request:
    """A row of a suite: a check, and the settings and data with which it runs.

    - ``settings``: names, "every", or "forced" (the settings that force one solver each)
    - ``dtypes``: ignored if ``problems`` is set
    - ``problems``: a key of ``data/problems.toml``, "matrix", or "" for no problem
    - ``directions``: each direction is a separate case
    - ``level``: lowest level that includes the check
    - ``if_failed``: name of a check. This check runs only if that one fails under the same setting.
    """

    check: str
    settings: tuple[str, ...] = ("default",)
    dtypes: tuple[str, ...] = ("float32",)
    problems: str = ""
    directions: bool = False
    level: str = "quick"
    if_failed: str = ""

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            similar = did_you_mean(self.check, CHECKS)
            raise BadInput(f"no check has the name {self.check!r}{similar} (see `rocmprobe list checks`)")


def cases(
    request: Request, target: Device, settings: tuple[Setting, ...], options: RunOptions
) -> Iterator[Case]:
    """Yield the cases of ``request`` on one device."""
    if not _requested_at(request, options):
        return
    if request.check in DIRECT:
        if target.backend != "miopen":
            return
    elif not target.torch:
        return
    for setting in settings:
        if _concerns(request, setting):
            yield from cases_under(request, target, setting, options)


def cases_under(
    request: Request,
    target: Device,
    setting: Setting,
    options: RunOptions,
    chosen: Optional[Sequence[Problem]] = None,
) -> Iterator[Case]:
    """Yield the cases of ``request`` under ``setting``, whatever settings the request names.

    ``chosen`` replaces the problems of the request, and must have the memory format and dtype of ``setting``.
    """
    native = native_problems(options, setting) if chosen is None else chosen
    form = Case(target.device, setting.name, request.check, "")
    for case in _under(request, form, target, setting, options, chosen):
        yield replace(case, needs=_needs(case, setting, native, _directions(options)))


def native_problems(options: RunOptions, setting: Setting) -> tuple[Problem, ...]:
    """Return the problems of the check ``convolution``, in the memory format and dtype of ``setting``."""
    return _problems("native", options, setting)


def in_order(asked: Sequence[Case]) -> list[Case]:
    """Sort cases for execution. Dependencies come first. Checks that can freeze the machine come last."""
    checks = list(CHECKS)
    trials: dict[str, int] = {}
    for case in asked:
        trials.setdefault(case.trial_key, len(trials))

    def place(case: Case) -> tuple[bool, int, bool, int, int]:
        rank = 0 if case.setting == "default" else 1 if case.check == "solver" else 2
        check = CHECKS[case.check]
        return (
            check.process == "last",
            rank,
            check.exclusive,
            trials[case.trial_key],
            checks.index(case.check),
        )

    return sorted(asked, key=place)


def _requested_at(request: Request, options: RunOptions) -> bool:
    if request.check in (*MODELS, "soak") and options.purpose == "inference":
        return False
    return request.check in options.only or LEVELS.index(options.level) >= LEVELS.index(request.level)


def _under(
    request: Request,
    form: Case,
    target: Device,
    setting: Setting,
    options: RunOptions,
    chosen: Optional[Sequence[Problem]],
) -> Iterator[Case]:
    if setting.solver:
        yield from _sweep(request, form, target, setting, options)
        return
    subjects: Sequence[Optional[Problem]] = (None,)
    if request.problems:
        few = CHECKS[request.check].own_process
        subjects = _problems(request.problems, options, setting, few) if chosen is None else chosen
        if request.check in DIRECT:
            subjects = _first_of_each_dtype(subjects)
    for problem in subjects:
        for dtype in (problem.dtype,) if problem else request.dtypes:
            for direction in _request_directions(request, options):
                text = problem.text if problem else None
                case = replace(form, dtype=dtype, problem=text, direction=direction)
                if request.if_failed:
                    case = replace(case, if_failed=(replace(case, check=request.if_failed).id,))
                if setting.by_name and not _wanted(setting, options):
                    case = replace(case, if_failed=(replace(case, setting="default").id,))
                yield case


def _wanted(setting: Setting, options: RunOptions) -> bool:
    """Return True if the user requested ``setting``."""
    return options.settings == "all" or setting.name in options.settings.replace(" ", "").split(",")


def _sweep(
    request: Request, form: Case, target: Device, setting: Setting, options: RunOptions
) -> Iterator[Case]:
    chosen = _problems(request.problems, options, setting)
    if options.level == "quick":
        chosen = _first_of_each_dtype(chosen)
    solver = by_name()[setting.solver]
    for problem in chosen:
        swept = _small(problem) if options.level == "quick" else problem
        for direction in _directions(options):
            if not solver.may_run(swept.text, direction, target.effective_isa):
                continue
            case = replace(form, dtype=problem.dtype, problem=swept.text, direction=direction)
            default = replace(case, setting="default", check="convolution", problem=problem.text)
            yield replace(case, if_failed=() if options.settings == "all" else (default.id,))


def _first_of_each_dtype(found: Sequence[Problem]) -> tuple[Problem, ...]:
    return tuple({problem.dtype: problem for problem in reversed(found)}.values())[::-1]


def _small(problem: Problem) -> Problem:
    """Shrink ``problem`` to at most two images, with at most 28 pixels along each axis.

    If the filter covers more than 28 pixels of an axis, shrink the axis to the size of the filter instead.
    """
    # A smaller problem saves time and runs the same kernel.
    sizes = zip(problem.input_size, problem.kernel, problem.dilation)
    cut = tuple(min(size, max(28, dilation * (kernel - 1) + 1)) for size, kernel, dilation in sizes)
    return replace(problem, batch=min(problem.batch, 2), input_size=cut)


def cases_of_stack(
    request: Request,
    target: Device,
    setting: Setting,
    dtypes: Sequence[str],
    options: RunOptions,
    planned: Container[str],
) -> Iterator[Case]:
    """Yield the cases that ``request`` runs under ``setting``, which the ladder found, in ``dtypes``.

    These are its ``planned`` cases under "default", or under the setting that uses MIOpen's convolution as
    little.
    """
    alike = "bypass" if setting.bypass else DEFAULT if setting.vendor_library else "vendor-off"
    # PyTorch's own kernels do not change with MIOpen's solvers.
    same = CHECKS[request.check].rung == "controls" and all(name.startswith("MIOPEN") for name in setting.env)
    if same or request.check in DIRECT:
        return
    for case in cases_under(request, target, setting, options):
        if case.dtype in dtypes and replace(case, setting=alike).id in planned:
            # The rungs below may fail without the setting.
            own = f"{target.device}/{setting.name}/"
            needs = (own + need.split("/", 2)[2] for need in case.needs)
            conditional = case.if_failed if request.if_failed else ()
            yield replace(case, needs=tuple(dict.fromkeys(needs)), if_failed=conditional)


def _concerns(request: Request, setting: Setting) -> bool:
    if setting.solver:
        return "forced" in request.settings
    every = "every" in request.settings and not setting.by_name
    # Checks of layers name "vendor-off", and a setting can move these layers, too.
    moved = bool(setting.pytorch_layers) and not setting.by_name and "vendor-off" in request.settings
    if not (every or moved) and setting.name not in request.settings:
        return False
    if setting.changes_problems and not request.problems:
        return False
    if setting.dtype and request.check != "convolution":
        return False
    return not (setting.inherit_environment and request.check == "start-up")


def _directions(options: RunOptions) -> tuple[str, ...]:
    return DIRECTIONS[:1] if options.purpose == "inference" else DIRECTIONS


def _request_directions(request: Request, options: RunOptions) -> tuple[Optional[str], ...]:
    """Return one item per case: a direction, or None for all directions."""
    timed = request.check in ("start-up", "throughput")
    if request.directions or (timed and options.purpose == "inference"):
        return _directions(options)
    return (None,)


def _problems(purpose: str, options: RunOptions, setting: Setting, few: bool = False) -> tuple[Problem, ...]:
    """Return the problems for a check. ``purpose`` is the value of ``Request.problems``.

    The user's problems replace the default problems, except for "gradients", "gradient-flow" and "kinds". For
    "matrix", return () if the user gave problems. If ``few`` and ``options.shapes`` are set, return only the
    problems in ``options.shapes`` that take the most arithmetic.
    """
    if purpose == "matrix":
        requested = () if options.problems else problem_matrix(options.level)
    elif purpose == "sizes" and options.problems:
        requested = ()
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
    return tuple(dict.fromkeys(filter(None, (_for_setting(problem, setting, own) for problem in requested))))


def _for_setting(problem: Problem, setting: Setting, own: bool) -> Optional[Problem]:
    """Return ``problem`` in the dtype and memory format of ``setting``.

    Return None if ``problem`` cannot have this format, or if nothing changes. If the user gave the problem
    (``own``) and the setting is channels_last, return the problem even if nothing changes.
    """
    if setting.channels_last and (problem.rank != 2 or problem.noncontiguous):
        return None
    changed = replace(
        problem,
        dtype=setting.dtype or problem.dtype,
        channels_last=setting.channels_last or problem.channels_last,
    )
    # Skip an unchanged problem, because the setting ``default`` tests it. Keep a problem that the user gave.
    as_it_is = own and setting.channels_last
    return changed if changed != problem or as_it_is else None


def _needs(
    case: Case, setting: Setting, native: Sequence[Problem], directions: Sequence[str]
) -> tuple[str, ...]:
    """Return the ids of the cases on which ``case`` depends."""
    if setting.device == "cpu":
        return ()
    requires = CHECKS[case.check].requires
    # The required checks do not test integers, so depend on the float32 case.
    dtype = "float32" if case.dtype.startswith("int") else case.dtype

    def gate(check: str, of: str, its_dtype: str) -> str:
        return replace(case, setting=of, check=check, dtype=its_dtype, problem=None, direction=None).id

    in_library = setting.vendor_library and not setting.bypass and setting.dtype is None
    other_layers = "default" if setting.vendor_library else "vendor-off"
    if setting.pytorch_layers:
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
    """Return the ids of the convolutions that must pass before ``case`` runs.

    ``which`` selects the directions: "own" (the direction of ``case``), "fwd", "every" or "" (none).
    """
    # PyTorch does not run float64 in MIOpen.
    if not which or (which == "own" and case.dtype == "float64"):
        return ()
    alike = [problem for problem in native if problem.dtype == case.dtype] or list(native)
    wanted = {"own": (case.direction,), "fwd": DIRECTIONS[:1]}.get(which, tuple(directions))
    return tuple(
        replace(case, check="convolution", dtype=gate.dtype, problem=gate.text, direction=direction).id
        for gate in alike[:1]
        for direction in wanted
    )
