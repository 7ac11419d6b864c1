"""Convolution, one direction of one problem: guards, float tier, bound and exact tier, run twice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import prod
from typing import Any, Optional

from rocmprobe.checks.check import Check, Requires
from rocmprobe.checks.tools.compare import bad_elements, differing, errors
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.tensors import (
    Tensors,
    cancelling,
    integers,
    leave_poison,
    magnitudes,
    one_thread,
    reference,
    run,
    uniform,
)
from rocmprobe.model.numerics import (
    CANCELLING,
    ON_INTEGERS,
    PARTS,
    SUMS,
    TRANSFORMS,
    cancelling_fill,
    error_bound,
    exact_fill,
    judge_float,
    limit,
    miopen_rule,
)

Results = Mapping[str, Any]
_HALF = ("float16", "bfloat16")


def convolution(context: CheckContext) -> CheckResult:
    """Judged against the same direction in fp64 on the CPU, outside the setting, by what its kernels owe
    (``numerics.SUMS`` and what follows it). Where two runs differ, both are judged."""
    problem, direction = context.the_problem, context.direction or "fwd"
    operands = uniform(problem, context.dtype, context.seed())
    expected = reference(problem, direction, operands)
    placed = _placed(context, operands)
    _leave_poison(context, expected)
    result, first_seconds = context.first_call(lambda: run(problem, direction, placed))
    _leave_poison(context, expected)
    again, steady_seconds = context.steady_call(lambda: run(problem, direction, placed))
    answer = CheckResult(timings={"first_call": first_seconds, "steady": steady_seconds})
    for name, right in expected.items():
        if result[name].shape != right.shape:
            answer.state = "wrong"
            answer.message = f"{name}: shape {tuple(result[name].shape)} instead of {tuple(right.shape)}"
            return answer
    with context.tested():
        repeatable = all(_same(result[name], again[name]) for name in expected)
    sums = None if _owed(context) == TRANSFORMS else reference(problem, direction, magnitudes(operands))
    for found in (result,) if repeatable else (result, again):
        _float_tier(context, direction, found, expected, sums, answer)
    answer.numerics.update(owed=_owed(context), repeatable=repeatable)
    _exact_tier(context, direction, answer)
    return answer


def _owed(context: CheckContext) -> str:
    """What the kernels that may run owe."""
    if not context.exact:
        return TRANSFORMS
    return (
        PARTS if context.dtype_name in _HALF and context.backend.rounds_parts and not context.bypass else SUMS
    )


def _parts(context: CheckContext, direction: str) -> int:
    """Into how many parts a sum may be rounded."""
    half = context.dtype_name in _HALF
    return context.the_problem.parts(direction) if half and _owed(context) != SUMS else 1


def _leave_poison(context: CheckContext, results: Results) -> None:
    with context.tested():
        leave_poison(results, context.dtype, context.device)


def _same(one: Any, other: Any) -> bool:
    """Element by element; what is not a number is the same as itself."""
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def _placed(context: CheckContext, operands: Tensors) -> Tensors:
    placed: Tensors = context.placed(lambda: operands.to(context.device, context.dtype, context.the_problem))
    return placed


def _terms(context: CheckContext, direction: str, name: str) -> int:
    """How many products are summed into one element of a result; the gradient of the bias is a sum of the
    output's."""
    problem = context.the_problem
    return problem.batch * prod(problem.output_size) if name == "bias" else problem.terms(direction)


@one_thread()
def _float_tier(
    context: CheckContext,
    direction: str,
    result: Results,
    expected: Results,
    sums: Optional[Results],
    answer: CheckResult,
    words: str = "",
) -> None:
    """Hold each result against the limits and, where ``sums`` of magnitudes are given, its bound. The numbers
    are those of the first result, or of the first that is wrong, which ``words`` introduce."""
    for name, right in expected.items():
        terms = _terms(context, direction, name)
        parts, bound = _parts(context, direction), None
        of_sums, of_reference, least = error_bound(context.dtype_name, terms, parts)
        if sums is not None and math.isfinite(of_sums):
            bound = of_sums * sums[name] + of_reference * right.abs() + least
        measured = errors(result[name], right, bound)
        holds, numbers, why = judge_float(measured, context.dtype_name, terms, _owed(context), parts)
        rule = miopen_rule(measured, context.dtype_name, direction, context.the_problem.transposed)
        if answer.state == "pass" and (not holds or not answer.numerics):
            answer.numerics.update({"of": name, **numbers, "miopen_rule": rule})
        if not holds and answer.state == "pass":
            allowed = (
                limit("max_ratio", context.dtype_name, terms, _owed(context), parts) * measured.max_reference
            )
            error = (result[name].detach().to("cpu", right.dtype) - right).abs()
            # Written so that what is not a number is bad.
            bad = ~(error <= (allowed if bound is None else bound.clamp(max=allowed)))
            also = "" if rule is None else f"; by MIOpen's own rule it {rule}"
            _wrong(answer, f"{words}{name}: {why}{also}", name, result[name], right, bad)


def _exact_tier(context: CheckContext, direction: str, answer: CheckResult) -> None:
    """Integer operands, a plain fill, and a cancelling one for who owes plain sums."""
    problem, dtype = context.the_problem, context.dtype_name
    terms = problem.terms(direction)
    answer.numerics["exact_demanded"] = context.exact
    plain = integers(problem, direction, exact_fill(dtype, terms, _owed(context)), context.seed())
    _equal_integers(context, direction, "exact", plain, answer)
    if _owed(context) == SUMS:
        small = cancelling(problem, direction, cancelling_fill(dtype, terms), context.seed())
        _equal_integers(context, direction, "cancelling", small, answer)


def _equal_integers(
    context: CheckContext, direction: str, fill: str, operands: Tensors, answer: CheckResult
) -> None:
    """Note whether every element is equal under ``fill`` ("exact", "cancelling"), and judge what is owed:
    equality; of transforms the nearest integer."""
    problem = context.the_problem
    expected = reference(problem, direction, operands)
    placed = _placed(context, operands)
    _leave_poison(context, expected)
    result, _ = context.steady_call(lambda: run(problem, direction, placed))
    answer.numerics[fill] = not any(bool(differing(result[name], expected[name]).any()) for name in expected)
    owed = _owed(context)
    if owed == TRANSFORMS:
        # Other operands than before: what a kernel left from its last call is no answer to them.
        _float_tier(context, direction, result, expected, None, answer, f"{ON_INTEGERS}, ")
    for name, right in expected.items():
        bad = differing(result[name], right, nearest=owed == TRANSFORMS)
        if answer.state == "pass" and bool(bad.any()):
            tier = "exact tier" if fill == "exact" else f"exact tier, {CANCELLING}"
            why = f"{int(bad.sum())} elements of {name} differ where sums of integers are exact"
            _wrong(answer, f"{tier}: {why}", name, result[name], right, bad)


def _wrong(answer: CheckResult, message: str, name: str, result: Any, reference: Any, bad: Any) -> None:
    answer.state, answer.message = "wrong", message
    numbers, answer.evidence = bad_elements(name, result, reference, bad)
    answer.numerics.update(numbers)


_CONVOLUTION = Requires(("elementwise",), outside=("gemm",))
_ANOTHER_CONVOLUTION = Requires(("elementwise",), outside=("gemm",), convolution="own")
CHECKS = (
    Check(
        "convolution", "conv", "Does convolution give right numbers, each direction apart?",
        convolution, _CONVOLUTION, capi_dtypes=(),
    ),
    Check(
        "problem-matrix", "conv", "Is convolution right over networks, variants and geometry?",
        convolution, _ANOTHER_CONVOLUTION,
    ),
    Check(
        "solver", "conv", "Does this solver alone give right numbers?", convolution,
        _CONVOLUTION, capi_dtypes=(), verified=False,
    ),
    Check(
        "convolution-kinds", rung="primitives", verified=False,
        question="Are 1-d, 3-d, transposed and depthwise convolution right?",
        function=convolution, requires=_ANOTHER_CONVOLUTION,
    ),
)  # fmt: skip
