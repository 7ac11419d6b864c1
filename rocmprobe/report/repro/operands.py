"""What each check computes, as code for a script without rocmprobe: the same numbers in the same order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Optional

from rocmprobe.checks import CHECKS, CONVOLUTIONS
from rocmprobe.checks.tools.repro_script import UNIFORM, ReproScript
from rocmprobe.model.numerics import (
    BEYOND,
    CANCELLING,
    LAYER_LIMITS,
    ON_INTEGERS,
    SUMS,
    cancelling_fill,
    error_bound,
    exact_fill,
    limit,
)
from rocmprobe.model.problems import DTYPES, Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS, BadInput, Outcome, Setting
from rocmprobe.report.text import one_line


def question(outcome: Outcome, setting: Setting, backend: str) -> ReproScript:
    """What ``outcome`` answers, under ``setting`` and with the library of ``backend``. Raises BadInput where
    that takes more than a script."""
    name = one_line(outcome.id)
    if setting.bypass and (outcome.rung in ("conv", "train") or outcome.problem):
        raise BadInput(
            f"{name}: this setting needs rocmprobe (`rocmprobe run --settings {one_line(setting.name)}`); "
            "a script without it reproduces the native settings"
        )
    if outcome.check in (*CONVOLUTIONS, "convolution-kinds", "solver"):
        return _convolution(outcome)
    if outcome.check == "gemm":
        return _gemm(outcome)
    fixed = CHECKS[outcome.check].script if outcome.check in CHECKS else None
    if fixed is not None:
        return replace(fixed, max_limit=LAYER_LIMITS[dtype_of(outcome)]) if fixed.max_limit is None else fixed
    if outcome.check in _FUSED:
        return _fused(outcome, setting, backend)
    same = [name for name, check in CHECKS.items() if check.script]
    also = ", ".join(sorted([*CONVOLUTIONS, "convolution-kinds", "gemm", *same, *_FUSED]))
    raise BadInput(f"{name}: the check {one_line(outcome.check)} has no stand-alone script ({also} have one)")


#: Kept when a tensor moves to the device.
CHANNELS_LAST = (
    "operands = [t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for t in operands]"
)
#: Not kept, so this is for where they have arrived.
_WITH_GAPS = 'torch.stack([t, t * float("nan")], -1)[..., 0]'
_WHOLE = (
    "def draw(s, top, fill=1.0):",
    "    return (torch.randint(1, top + 1, s) * (torch.randint(0, 2, s) * 2 - 1)"
    " * (torch.rand(s) < fill)).double()",
)


def _convolution(outcome: Outcome) -> ReproScript:
    """As in ``checks.convolution``: each direction by its own operator, not through a forward
    that may fail first."""
    problem, direction = problem_of(outcome), outcome.direction or "fwd"
    if direction not in DIRECTIONS:
        raise BadInput(f"{one_line(outcome.id)}: {one_line(direction)!r} is not a direction")
    shapes = {"x": problem.input_shape, "w": problem.weight_shape}
    if problem.bias:
        shapes = {"b": (problem.out_channels,), **shapes}
    if direction != "fwd":
        shapes["dy"] = problem.output_shape
    drawn = [f"draw({', '.join(map(str, shape))})" for shape in shapes.values()]
    owed = str(outcome.numerics.get("owed", SUMS))
    draw: tuple[str, ...] = (UNIFORM,)
    limits: tuple[float, Optional[float]] = _float_limits(
        problem.dtype, problem.terms(direction), owed, _parts(problem, direction, owed)
    )
    if _exact_tier(outcome):
        drawn = _integers(problem, direction, shapes, owed)
        if CANCELLING in _last_message(outcome):
            drawn = _cancelling(problem, direction, shapes)
        draw, limits = _WHOLE, (0.0, None)
    elif _last_message(outcome).startswith(ON_INTEGERS):
        draw, drawn = _WHOLE, _integers(problem, direction, shapes, owed)
    result = _forward(problem) if direction == "fwd" else _backward(problem, direction)
    laid_out = [name for name in shapes if name != "b"] if problem.noncontiguous else []
    gaps = [f"{', '.join(laid_out)} = ({_WITH_GAPS} for t in ({', '.join(laid_out)}))"] if laid_out else []
    asked = ReproScript(
        tuple(shapes), tuple(drawn), draw, result, *limits, channels_last=problem.channels_last,
        before=tuple(gaps),
    )  # fmt: skip
    return (
        replace(asked, bound=_bound(outcome, problem, direction))
        if BEYOND in _last_message(outcome)
        else asked
    )


def _bound(outcome: Outcome, problem: Problem, direction: str) -> tuple[float, float, float]:
    """Of the result with the longest sums: the gradient of a bias is one of its own."""
    of_bias = problem.batch * prod(problem.output_size) if direction == "bwd-weights" else 0
    parts = _parts(problem, direction, str(outcome.numerics.get("owed", SUMS)))
    return error_bound(problem.dtype, max(problem.terms(direction), of_bias), parts)


def _integers(
    problem: Problem, direction: str, shapes: Mapping[str, tuple[int, ...]], owed: str
) -> list[str]:
    """As ``checks.tools.tensors.integers`` draws them."""
    fill = exact_fill(problem.dtype, problem.terms(direction), owed)
    sparse = "dy" if direction == "bwd-data" else "x"
    return [
        f"draw({shape}, {fill.largest}{f', {fill.density}' if name == sparse else ''})"
        for name, shape in shapes.items()
    ]


def _cancelling(problem: Problem, direction: str, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """As ``checks.tools.tensors.cancelling`` draws them: one operand is a base and little more, the other
    sums to zero over what the direction sums."""
    fill = cancelling_fill(problem.dtype, problem.terms(direction))
    drawn = {
        name: f"{fill.base} + draw({shape}, 1, {fill.density})"
        if name in ("x", "dy")
        else f"draw({shape}, {fill.largest})"
        for name, shape in shapes.items()
    }
    space = list(range(-problem.rank, 0))
    if direction == "bwd-weights":
        along = [0] if problem.batch > 1 else space
        drawn["dy"] = f"(v := draw({shapes['dy']}, {fill.largest})) - v.flip({along})"
    elif (direction == "fwd") != problem.transposed:
        along = [1] if shapes["w"][1] > 1 else space
        drawn["w"] = f"(v := {drawn['w']}) - v.flip({along})"
    else:
        along = [1] if shapes["w"][0] > problem.groups else space
        grouped = f"{drawn['w']}.unflatten(0, ({problem.groups}, -1))"
        drawn["w"] = f"((v := {grouped}) - v.flip({along})).flatten(0, 1)"
    return list(drawn.values())


def _parts(problem: Problem, direction: str, owed: str) -> int:
    half = problem.dtype in ("float16", "bfloat16")
    return problem.parts(direction) if half and owed != SUMS else 1


def _float_limits(dtype: str, terms: int, owed: str = SUMS, parts: int = 1) -> tuple[float, float]:
    """Of the largest error and of the root mean square, as the checks have them."""
    largest, mean = (limit(measure, dtype, terms, owed, parts) for measure in ("max_ratio", "rms_range"))
    return largest, mean


def _forward(problem: Problem) -> tuple[str, ...]:
    arguments = ["x", "w", *(["b"] if problem.bias else [])]
    for name, values, usual in (
        ("stride", problem.stride, 1), ("padding", problem.padding, 0),
        ("output_padding", problem.output_padding, 0), ("dilation", problem.dilation, 1),
    ):  # fmt: skip
        if set(values) != {usual}:
            arguments.append(f"{name}={values}")
    if problem.groups != 1:
        arguments.append(f"groups={problem.groups}")
    return (f"[torch.nn.functional.{problem.kind}(", *arguments, ")]")


def _backward(problem: Problem, direction: str) -> tuple[str, ...]:
    data = direction == "bwd-data"
    bias = problem.bias and not data
    arguments = [
        "dy", "x", "w", f"[{problem.out_channels}]" if bias else "None",
        *(str(list(each)) for each in (problem.stride, problem.padding, problem.dilation)),
        str(problem.transposed), str(list(problem.output_padding)), str(problem.groups),
        str([data, not data, bias]),
    ]  # fmt: skip
    wanted = "[:1]" if data else "[1:]" if bias else "[1:2]"
    return ("torch.ops.aten.convolution_backward(", *arguments, f"){wanted}")


def _gemm(outcome: Outcome) -> ReproScript:
    dtype = dtype_of(outcome)
    if _exact_tier(outcome):
        fill = exact_fill(dtype, 576)
        drawn = (
            f"draw((192, 576), {fill.largest}, {fill.density})",
            f"draw((576, 320), {fill.largest})",
        )
        return ReproScript(("a", "b"), drawn, _WHOLE, ("[", "a @ b", "]"), 0.0)
    result = ("[", "a[0] @ b[0]", "torch.bmm(a, b)", "]")
    drawn = ("draw(4, 192, 576)", "draw(4, 576, 320)")
    return ReproScript(("a", "b"), drawn, (UNIFORM,), result, *_float_limits(dtype, 576))


#: Fused operators, with and without a summand: what each is called by, for each library.
_FUSED = ("convolution-relu", "convolution-add-relu")


def _fused(outcome: Outcome, setting: Setting, backend: str) -> ReproScript:
    """As in ``checks.primitives``: by the library's own operator, or with the library off by separate
    ones, which are the reference as well."""
    add = outcome.check == "convolution-add-relu"
    names = ("x", "w", "b", *(["z"] if add else []))
    drawn = ("draw(2, 4, 8, 8)", "draw(6, 4, 3, 3)", "draw(6)", *(["draw(2, 6, 8, 8)"] if add else []))
    separate = f"torch.relu(torch.nn.functional.conv2d(x, w, b, padding=1){' + z' if add else ''})"
    limit = LAYER_LIMITS[dtype_of(outcome)]
    if not setting.vendor_library:
        return ReproScript(names, drawn, (UNIFORM,), ("[", separate, "]"), limit)
    one = "[1, 1], [1, 1], [1, 1], 1"
    if backend == "onednn":
        where, operator = "x.dtype != torch.float64", "torch.ops.mkldnn._convolution_pointwise"
        arguments = f'x, w, b, {one}, "relu", [], ""'
        if add:
            operator += ".binary"
            arguments = f'x, z, w, b, {one}, "add", 1.0, "relu", [], None'
    else:
        where, operator = "x.is_cuda", f"torch.{backend}_convolution_{'add_relu' if add else 'relu'}"
        arguments = f"x, w, {'z, 1.0, ' if add else ''}b, {one}"
    before = (f"if {where}:", f"    fused = {operator}", f"    return [fused({arguments})]")
    return ReproScript(names, drawn, (UNIFORM,), ("[", separate, "]"), limit, before=before)


def dtype_of(outcome: Outcome) -> str:
    if outcome.dtype not in DTYPES.values():
        raise BadInput(f"{one_line(outcome.id)}: {one_line(outcome.dtype)!r} is not a dtype")
    return outcome.dtype


def problem_of(outcome: Outcome) -> Problem:
    if outcome.problem is None:
        raise BadInput(f"{one_line(outcome.id)}: the results name no problem for it; run again")
    return parse_problem(outcome.problem)


def _exact_tier(outcome: Outcome) -> bool:
    """Whether the outcome is wrong in the exact tier alone: small integers, where every element counts."""
    return outcome.state == "wrong" and _last_message(outcome).startswith("exact tier")


def _last_message(outcome: Outcome) -> str:
    """What the last attempt with words said."""
    return next((attempt.message for attempt in reversed(outcome.attempts) if attempt.message), "")
