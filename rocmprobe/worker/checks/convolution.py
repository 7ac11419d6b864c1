"""Convolution, one direction of one problem: guards, float tier, bound and exact tier, run twice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import prod
from typing import Any, Optional

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
from rocmprobe.worker.ask import Answer, Ask
from rocmprobe.worker.compare import bad_elements, differing, errors
from rocmprobe.worker.tensors import (
    Tensors,
    cancelling,
    integers,
    leave_poison,
    magnitudes,
    reference,
    run,
    uniform,
)

Results = Mapping[str, Any]
_HALF = ("float16", "bfloat16")


def convolution(ask: Ask) -> Answer:
    """Judged against the same direction in fp64 on the CPU, outside the setting, by what its kernels owe
    (``numerics.SUMS`` and what follows it). Where two runs differ, both are judged."""
    problem, direction = ask.the_problem, ask.direction or "fwd"
    operands = uniform(problem, ask.dtype, ask.seed())
    expected = reference(problem, direction, operands)
    placed = _placed(ask, operands)
    _leave_poison(ask, expected)
    result, first_seconds = ask.first_call(lambda: run(problem, direction, placed))
    _leave_poison(ask, expected)
    again, steady_seconds = ask.steady_call(lambda: run(problem, direction, placed))
    answer = Answer(timings={"first_call": first_seconds, "steady": steady_seconds})
    for name, right in expected.items():
        if result[name].shape != right.shape:
            answer.state = "wrong"
            answer.message = f"{name}: shape {tuple(result[name].shape)} instead of {tuple(right.shape)}"
            return answer
    with ask.tested():
        repeatable = all(_same(result[name], again[name]) for name in expected)
    sums = None if _owed(ask) == TRANSFORMS else reference(problem, direction, magnitudes(operands))
    for found in (result,) if repeatable else (result, again):
        _float_tier(ask, direction, found, expected, sums, answer)
    answer.numerics.update(owed=_owed(ask), repeatable=repeatable)
    _exact_tier(ask, direction, answer)
    return answer


def _owed(ask: Ask) -> str:
    """What the kernels that may run owe."""
    if not ask.exact:
        return TRANSFORMS
    return PARTS if ask.dtype_name in _HALF and ask.backend.rounds_parts and not ask.bypass else SUMS


def _parts(ask: Ask, direction: str) -> int:
    """Into how many parts a sum may be rounded."""
    half = ask.dtype_name in _HALF
    return ask.the_problem.parts(direction) if half and _owed(ask) != SUMS else 1


def _leave_poison(ask: Ask, results: Results) -> None:
    with ask.tested():
        leave_poison(results, ask.dtype, ask.device)


def _same(one: Any, other: Any) -> bool:
    """Element by element; what is not a number is the same as itself."""
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def _placed(ask: Ask, operands: Tensors) -> Tensors:
    placed: Tensors = ask.placed(lambda: operands.to(ask.device, ask.dtype, ask.the_problem))
    return placed


def _terms(ask: Ask, direction: str, name: str) -> int:
    """How many products are summed into one element of a result; the gradient of the bias is a sum of the
    output's."""
    problem = ask.the_problem
    return problem.batch * prod(problem.output_size) if name == "bias" else problem.terms(direction)


def _float_tier(
    ask: Ask,
    direction: str,
    result: Results,
    expected: Results,
    sums: Optional[Results],
    answer: Answer,
    words: str = "",
) -> None:
    """Hold each result against the limits and, where ``sums`` of magnitudes are given, its bound. The numbers
    are those of the first result, or of the first that is wrong, which ``words`` introduce."""
    for name, right in expected.items():
        terms = _terms(ask, direction, name)
        parts, bound = _parts(ask, direction), None
        of_sums, of_reference, least = error_bound(ask.dtype_name, terms, parts)
        if sums is not None and math.isfinite(of_sums):
            bound = of_sums * sums[name] + of_reference * right.abs() + least
        measured = errors(result[name], right, bound)
        holds, numbers, why = judge_float(measured, ask.dtype_name, terms, _owed(ask), parts)
        rule = miopen_rule(measured, ask.dtype_name, direction, ask.the_problem.transposed)
        if answer.state == "pass" and (not holds or not answer.numerics):
            answer.numerics.update({"of": name, **numbers, "miopen_rule": rule})
        if not holds and answer.state == "pass":
            allowed = limit("max_ratio", ask.dtype_name, terms, _owed(ask), parts) * measured.max_reference
            error = (result[name].detach().to("cpu", right.dtype) - right).abs()
            # Written so that what is not a number is bad.
            bad = ~(error <= (allowed if bound is None else bound.clamp(max=allowed)))
            also = "" if rule is None else f"; by MIOpen's own rule it {rule}"
            _wrong(answer, f"{words}{name}: {why}{also}", name, result[name], right, bad)


def _exact_tier(ask: Ask, direction: str, answer: Answer) -> None:
    """Integer operands, a plain fill, and a cancelling one for who owes plain sums."""
    problem, dtype = ask.the_problem, ask.dtype_name
    terms = problem.terms(direction)
    answer.numerics["exact_demanded"] = ask.exact
    plain = integers(problem, direction, exact_fill(dtype, terms, _owed(ask)), ask.seed())
    _equal_integers(ask, direction, "exact", plain, answer)
    if _owed(ask) == SUMS:
        small = cancelling(problem, direction, cancelling_fill(dtype, terms), ask.seed())
        _equal_integers(ask, direction, "cancelling", small, answer)


def _equal_integers(ask: Ask, direction: str, fill: str, operands: Tensors, answer: Answer) -> None:
    """Note whether every element is equal under ``fill`` ("exact", "cancelling"), and judge what is owed:
    equality; of transforms the nearest integer."""
    problem = ask.the_problem
    expected = reference(problem, direction, operands)
    placed = _placed(ask, operands)
    _leave_poison(ask, expected)
    result, _ = ask.steady_call(lambda: run(problem, direction, placed))
    answer.numerics[fill] = not any(bool(differing(result[name], expected[name]).any()) for name in expected)
    owed = _owed(ask)
    if owed == TRANSFORMS:
        # Other operands than before: what a kernel left from its last call is no answer to them.
        _float_tier(ask, direction, result, expected, None, answer, f"{ON_INTEGERS}, ")
    for name, right in expected.items():
        bad = differing(result[name], right, nearest=owed == TRANSFORMS)
        if answer.state == "pass" and bool(bad.any()):
            tier = "exact tier" if fill == "exact" else f"exact tier, {CANCELLING}"
            why = f"{int(bad.sum())} elements of {name} differ where sums of integers are exact"
            _wrong(answer, f"{tier}: {why}", name, result[name], right, bad)


def _wrong(answer: Answer, message: str, name: str, result: Any, reference: Any, bad: Any) -> None:
    answer.state, answer.message = "wrong", message
    numbers, answer.evidence = bad_elements(name, result, reference, bad)
    answer.numerics.update(numbers)
