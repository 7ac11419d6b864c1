"""Checks of one direction of a convolution problem.

For random operands, the error of the result and of each element is limited. For integer operands, results
must be exact. If transforms such as Winograd are allowed, these results are rounded to integers first.
Further calls test large operands, misaligned operands, and operands with NaN and infinity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from rocmprobe.checks.check import Check, Requires
from rocmprobe.checks.tools.compare import bad_elements, errors
from rocmprobe.checks.tools.computation import (
    Computation,
    Named,
    Shapes,
    bound_ratio,
    cancelling,
    differing,
    integers,
    max_ratio,
    one_thread,
    propagates,
    rms_range,
    rounding,
    unequal,
    uniform,
    unlike,
)
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.tensors import call_of, layout, leave_poison, shapes
from rocmprobe.model.numerics import (
    PARTS,
    SUMS,
    TRANSFORMS,
    cancelling_fill,
    error_bound,
    exact_fill,
    float_limits,
    judge_float,
    large_scale,
    miopen_rule,
)
from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import Outcome

if TYPE_CHECKING:
    from torch import Tensor

Results = Mapping[str, "Tensor"]
_HALF = ("float16", "bfloat16")
#: If the reference needs more multiplications and additions than this, it uses several threads.
_WORTH_THREADS = 500_000_000


def float_tier(problem: Problem, direction: str, guarantee: str) -> Computation:
    """Return the computation on uniformly distributed random operands.

    ``guarantee`` is the numerical guarantee that the kernels must meet (e.g. ``numerics.SUMS``). With
    ``numerics.TRANSFORMS``, elements have no error bounds.
    """
    limits, bounds = {}, {}
    parts = parts_of(problem, direction, guarantee)
    for name in _results(problem, direction):
        terms = _terms(problem, direction, name)
        limits[name] = float_limits(problem.dtype, terms, guarantee, parts)
        bound = error_bound(problem.dtype, terms, parts)
        if guarantee != TRANSFORMS and all(map(math.isfinite, bound)):
            bounds[name] = bound
    if len({tuple(of_result.values()) for of_result in limits.values()}) == 1:
        limits = {"": limits.popitem()[1]}
    return Computation(
        partial(uniform, _drawn(problem, direction)),
        call_of(problem, direction),
        (max_ratio, rms_range),
        limits,
        layout=layout(problem),
        bounds=bounds,
    )


def exact_tier(problem: Problem, direction: str, guarantee: str) -> Computation:
    """Return the computation on integers whose sums are exact."""
    # If many products are summed, most elements of one operand are zero, so that sums stay exact.
    fill = exact_fill(problem.dtype, problem.terms(direction), guarantee)
    draw = partial(
        integers,
        _drawn(problem, direction),
        largest=fill.largest,
        density={"grad" if direction == "bwd-data" else "input": fill.density},
    )
    return _on_integers(problem, direction, guarantee, draw)


def large_tier(problem: Problem, direction: str, guarantee: str) -> Computation:
    """Return the computation on random operands, with one operand multiplied by a power of two."""
    tier = float_tier(problem, direction, guarantee)
    scale = large_scale(problem.dtype, problem.terms(direction), guarantee)
    scales = {"input": scale, "bias": scale} if direction == "fwd" else {"grad": scale}
    return replace(tier, draw=partial(uniform, _drawn(problem, direction), scales=scales))


def misaligned_tier(problem: Problem, direction: str, guarantee: str) -> Computation:
    """Return the computation on random operands that are not aligned to 16 bytes."""
    return replace(float_tier(problem, direction, guarantee), misaligned=True)


def non_finite_tier(problem: Problem, direction: str, guarantee: str) -> Computation:
    """Return the computation on random operands with a NaN and an infinity in the first sample."""
    if direction == "bwd-weights":
        # The other operand is multiplied by the zeros of the padding, and kernels can skip these products.
        operand = "grad" if problem.transposed else "input"
    else:
        operand = "input" if direction == "fwd" else "grad"
    return Computation(
        partial(uniform, _drawn(problem, direction), non_finite=operand),
        call_of(problem, direction),
        (partial(unlike, per_sample=direction != "bwd-weights"),),
        {"": {"unlike": 0}},
        layout=layout(problem),
    )


#: Computations on special operands, keyed by the name of their verdict in ``Outcome.numerics``.
_SPECIAL = {"large": large_tier, "misaligned": misaligned_tier, "non_finite_kept": non_finite_tier}


def cancelling_tier(problem: Problem, direction: str, guarantee: str) -> Computation:
    """Return the computation on integers with large products and small sums."""
    fill = cancelling_fill(problem.dtype, problem.terms(direction))
    drawn, space = _drawn(problem, direction), list(range(-problem.rank, 0))
    groups = 1
    if direction == "bwd-weights":
        # The gradient sums to zero over the batch, not over the positions, because padding excludes some
        # positions from a sum. With a single sample, only the positions are left.
        zero_sum, along = "grad", [1] if problem.batch > 1 else space
    elif (direction == "fwd") != problem.transposed:
        zero_sum, along = "weight", [2] if drawn["weight"][1] > 1 else space
    else:
        groups = problem.groups
        zero_sum, along = "weight", [1] if drawn["weight"][0] > groups else space
    draw = partial(
        cancelling,
        drawn,
        base=fill.base,
        largest=fill.largest,
        density=fill.density,
        zero_sum=zero_sum,
        along=along,
        groups=groups,
    )
    return _on_integers(problem, direction, guarantee, draw)


def _on_integers(problem: Problem, direction: str, guarantee: str, draw: partial[Named]) -> Computation:
    """Return a computation whose results must be exact integers.

    If transforms are allowed, results are rounded to integers before the comparison.
    """
    measure = partial(unequal, nearest=True) if guarantee == TRANSFORMS else unequal
    return Computation(
        draw, call_of(problem, direction), (measure,), {"": {"unequal": 0}}, layout=layout(problem)
    )


def _drawn(problem: Problem, direction: str) -> Shapes:
    return {name: shape for name, shape in shapes(problem).items() if name != "grad" or direction != "fwd"}


def _results(problem: Problem, direction: str) -> tuple[str, ...]:
    if direction == "bwd-weights":
        return ("weight", "bias") if problem.bias else ("weight",)
    return ("output",) if direction == "fwd" else ("input",)


def _terms(problem: Problem, direction: str, name: str) -> int:
    return problem.batch * prod(problem.output_size) if name == "bias" else problem.terms(direction)


def parts_of(problem: Problem, direction: str, guarantee: str) -> int:
    """Return the number of partial sums that a kernel can round to half precision before adding them.

    Return 1 if the dtype is not half precision, or if ``guarantee`` is ``numerics.SUMS``.
    """
    return problem.parts(direction) if problem.dtype in _HALF and guarantee != SUMS else 1


def script(outcome: Outcome) -> Computation:
    """Return the computation that failed in ``outcome``.

    If no result was wrong, return the computation on random operands.
    """
    problem, direction = parse_problem(outcome.problem or ""), outcome.direction or "fwd"
    numerics = outcome.numerics
    guarantee = str(numerics.get("owed", SUMS))
    tier = float_tier(problem, direction, guarantee)
    for name, special in _SPECIAL.items():
        if numerics.get(name) is False:
            return replace(special(problem, direction, guarantee), bounds={})
    plain = replace(tier, bounds={})
    if outcome.state != "wrong":
        return plain
    if numerics.get("non_finite") or any(
        _exceeds(numerics, name, numerics.get(f"{name}_limit")) for name in ("rms_range", "max_ratio")
    ):
        whole = guarantee == TRANSFORMS and _is_whole(numerics)
        return replace(plain, draw=exact_tier(problem, direction, guarantee).draw) if whole else plain
    if len(tier.bounds) == len(_results(problem, direction)) and _exceeds(numerics, "bound_ratio", 1):
        return replace(tier, measures=(bound_ratio,), limits={"": {"bound_ratio": 1}})
    if numerics.get("exact") is False:
        return exact_tier(problem, direction, guarantee)
    return cancelling_tier(problem, direction, guarantee) if numerics.get("cancelling") is False else plain


def _is_whole(numerics: Mapping[str, Any]) -> bool:
    """Return True if the worst element's expected value is an integer."""
    worst = numerics.get("worst")
    reference = worst.get("reference") if isinstance(worst, Mapping) else None
    return isinstance(reference, (int, float)) and float(reference).is_integer()


def _exceeds(numerics: Mapping[str, Any], name: str, limit: object) -> bool:
    """Return True if ``numerics[name]`` exceeds ``limit``, and False if the name is missing."""
    # NaN and text exceed every limit.
    values = (numerics.get(name, 0), limit)
    return name in numerics and not (
        all(isinstance(value, (int, float)) for value in values) and values[0] <= values[1]
    )


def convolution(context: CheckContext) -> CheckResult:
    """Compare one direction of a convolution to fp64 on the CPU.

    The convolution runs twice. If the two results differ, each is compared to fp64.
    """
    tier = float_tier(_problem(context), _direction(context), guarantee_of(context))
    operands = tier.operands(context.dtype, context.seed())
    expected = reference(context.the_problem, tier, operands)
    placed = _placed(context, tier, operands)
    _leave_poison(context, expected)
    result, first_seconds = context.first_call(lambda: tier.call(**placed))
    _leave_poison(context, expected)
    again, steady_seconds = context.steady_call(lambda: tier.call(**placed))
    answer = CheckResult(timings={"first_call": first_seconds, "steady": steady_seconds})
    for name, right in expected.items():
        if result[name].shape != right.shape:
            answer.state = "wrong"
            answer.message = f"{name}: shape {tuple(result[name].shape)} instead of {tuple(right.shape)}"
            return answer
        if not _has_format(result[name], context.the_problem):
            answer.state = "wrong"
            answer.message = f"{name}: wrong memory format, strides {result[name].stride()}"
            return answer
    with context.under_setting():
        repeatable = all(_same(result[name], again[name]) for name in expected)
    with one_thread():
        magnitudes = {name: operand.abs() for name, operand in operands.items()}
    sums = reference(context.the_problem, tier, magnitudes) if tier.bounds else {}
    for measured in (result,) if repeatable else (result, again):
        _float_tier(context, tier, measured, expected, sums, answer)
    answer.numerics.update(owed=guarantee_of(context), repeatable=repeatable)
    _exact_tier(context, tier, answer)
    if answer.state == "pass":
        _special_operands(context, operands, expected, sums, answer)
    return answer


def _has_format(result: Tensor, problem: Problem) -> bool:
    """Return True if the result is contiguous, or channels-last in a problem that is channels-last.

    PyTorch returns either format for channels-last operands: with MIOpen, unless
    PYTORCH_MIOPEN_SUGGEST_NHWC is set, results are contiguous.
    """
    import torch

    nhwc = problem.channels_last and result.dim() == 4
    return result.is_contiguous() or (nhwc and result.is_contiguous(memory_format=torch.channels_last))


def _special_operands(
    context: CheckContext, operands: Named, expected: Results, sums: Results, answer: CheckResult
) -> None:
    """Test large, misaligned and non-finite operands, and store the verdicts in ``answer``."""
    problem, direction, guarantee = _problem(context), _direction(context), guarantee_of(context)
    large = large_tier(problem, direction, guarantee)
    scales = large.draw.keywords["scales"]
    scale = scales["input" if direction == "fwd" else "grad"]
    with one_thread():
        scaled = {operand: values * scales.get(operand, 1) for operand, values in operands.items()}
        large_results, large_sums = (
            {key: each * scale for key, each in of.items()} for of in (expected, sums)
        )
    misaligned = misaligned_tier(problem, direction, guarantee)
    for name, tier, given, right, bounding, words in (
        ("large", large, scaled, large_results, large_sums, f"with operands times {scale:g}, "),
        ("misaligned", misaligned, operands, expected, sums, "with misaligned operands, "),
    ):
        placed = _placed(context, tier, given)
        result, _ = context.steady_call(partial(tier.call, **placed))
        _float_tier(context, tier, result, right, bounding, answer, words)
        answer.numerics[name] = answer.state == "pass"
        if answer.state != "pass":
            return
    tier = non_finite_tier(problem, direction, guarantee)
    operands = tier.operands(context.dtype, context.seed())
    placed = _placed(context, tier, operands)
    result, _ = context.steady_call(lambda: tier.call(**placed))
    # Only the first sample has the NaN and the infinity, so the other samples need no reference.
    first = {name: each[:1] if name in ("input", "grad") else each for name, each in operands.items()}
    per_sample = direction != "bwd-weights"
    for name, part in reference(context.the_problem, tier, first).items():
        with one_thread():
            wanted = part if part.shape == expected[name].shape else expected[name].clone()
            wanted[: len(part)] = part
            bad = ~propagates(result[name], wanted, per_sample=per_sample)
        if answer.state == "pass" and bool(bad.any()):
            why = f"{int(bad.sum())} elements of {name} do not propagate NaN and infinity correctly"
            _wrong(answer, why, name, result[name], wanted, bad)
    answer.numerics["non_finite_kept"] = answer.state == "pass"


def reference(problem: Problem, tier: Computation, operands: Named) -> Named:
    """Return the expected results in fp64 on the CPU."""
    with nullcontext() if problem.flops > _WORTH_THREADS else one_thread():
        return tier.expected(operands)


def _problem(context: CheckContext) -> Problem:
    return replace(context.the_problem, dtype=context.dtype_name)


def _direction(context: CheckContext) -> str:
    return context.direction or "fwd"


def guarantee_of(context: CheckContext) -> str:
    if not context.exact:
        return TRANSFORMS
    return (
        PARTS if context.dtype_name in _HALF and context.backend.rounds_parts and not context.bypass else SUMS
    )


def _leave_poison(context: CheckContext, results: Results) -> None:
    with context.under_setting():
        leave_poison(results, context.dtype, context.device)


def _same(one: Tensor, other: Tensor) -> bool:
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def _placed(context: CheckContext, tier: Computation, operands: Named) -> Named:
    return context.placed(lambda: tier.placed(operands, context.device, context.dtype))


@one_thread()
def _float_tier(
    context: CheckContext,
    tier: Computation,
    result: Results,
    expected: Results,
    sums: Results,
    answer: CheckResult,
    words: str = "",
) -> None:
    """Compare ``result`` to ``expected``, and store errors and verdict in ``answer``.

    ``sums`` has the results for the operands' absolute values, from which the error bounds of elements
    follow.
    """
    problem, direction, guarantee = _problem(context), _direction(context), guarantee_of(context)
    for name, right in expected.items():
        terms, parts = _terms(problem, direction, name), parts_of(problem, direction, guarantee)
        bound = None
        if name in sums and name in tier.bounds:
            bound = rounding(sums[name], right, *tier.bounds[name])
        measured = errors(result[name], right, bound)
        holds, numbers, why = judge_float(measured, context.dtype_name, terms, guarantee, parts)
        rule = miopen_rule(measured, context.dtype_name, direction, problem.transposed)
        if answer.state == "pass" and (not holds or not answer.numerics):
            answer.numerics.update({"of": name, **numbers, "miopen_rule": rule})
        if not holds and answer.state == "pass":
            allowed = tier.limit("max_ratio", name) * measured.max_reference
            error = (result[name].detach().to("cpu", right.dtype) - right).abs()
            # Do not use `error > ...`, because NaN would then count as correct.
            bad = ~(error <= (allowed if bound is None else bound.clamp(max=allowed)))
            also = "; MIOpen's own tests would accept it" if rule == "passes" else ""
            _wrong(answer, f"{words}{name}: {why}{also}", name, result[name], right, bad)


def _exact_tier(context: CheckContext, tier: Computation, answer: CheckResult) -> None:
    problem, direction, guarantee = _problem(context), _direction(context), guarantee_of(context)
    answer.numerics["exact_demanded"] = context.exact
    _equal_integers(context, tier, "exact", exact_tier(problem, direction, guarantee), answer)
    if guarantee == SUMS:
        _equal_integers(context, tier, "cancelling", cancelling_tier(problem, direction, guarantee), answer)


def _equal_integers(
    context: CheckContext, floats: Computation, fill: str, tier: Computation, answer: CheckResult
) -> None:
    """Test ``tier``, a computation on integers, and store the verdict in ``answer``.

    ``fill`` is "exact" if ``tier`` comes from ``exact_tier``, or "cancelling" if it comes from
    ``cancelling_tier``. If transforms such as Winograd are allowed, results are rounded to integers before
    they are compared. In this case, errors before rounding must also meet the limits for random operands
    (``floats``).
    """
    operands = tier.operands(context.dtype, context.seed())
    expected = reference(context.the_problem, tier, operands)
    placed = _placed(context, tier, operands)
    _leave_poison(context, expected)
    result, _ = context.steady_call(lambda: tier.call(**placed))
    with one_thread():
        answer.numerics[fill] = not any(unequal(result[name], expected[name]) for name in expected)
    nearest = guarantee_of(context) == TRANSFORMS
    if nearest:
        # The operands differ from those of the first call, so this test detects results that the first call
        # left in memory.
        _float_tier(context, floats, result, expected, {}, answer, "on integers, ")
    for name, right in expected.items():
        with one_thread():
            bad = differing(result[name], right, nearest)
        if answer.state == "pass" and bool(bad.any()):
            words = "exact tier" if fill == "exact" else "exact tier, cancelling fill"
            why = f"{int(bad.sum())} elements of {name} differ, although sums of integers are exact"
            _wrong(answer, f"{words}: {why}", name, result[name], right, bad)


def _wrong(
    answer: CheckResult, message: str, name: str, result: Tensor, reference: Tensor, bad: Tensor
) -> None:
    answer.state, answer.message = "wrong", message
    numbers, answer.evidence = bad_elements(name, result, reference, bad)
    answer.numerics.update(numbers)


_CONVOLUTION = Requires(("elementwise",), outside=("gemm",))
_ANOTHER_CONVOLUTION = Requires(("elementwise",), outside=("gemm",), convolution="own")
CHECKS = (
    Check(
        name="convolution",
        rung="conv",
        question="Does convolution give correct results in each direction?",
        function=convolution,
        requires=_CONVOLUTION,
        script=script,
    ),
    Check(
        name="problem-matrix",
        rung="conv",
        question="Is convolution correct for different networks, variants and geometry?",
        function=convolution,
        requires=_ANOTHER_CONVOLUTION,
        script=script,
    ),
    Check(
        name="solver",
        rung="conv",
        question="Does this solver alone give correct results?",
        function=convolution,
        requires=_CONVOLUTION,
        script=script,
    ),
    Check(
        "convolution-kinds",
        rung="primitives",
        question="Are 1-d, 3-d, transposed and depthwise convolution correct?",
        function=convolution,
        requires=_ANOTHER_CONVOLUTION,
        script=script,
    ),
)
