"""Convolution, one direction of one problem: float tier, exact tier, run twice."""

from __future__ import annotations

from rocmprobe.numerics import exact_fill, judge_float
from rocmprobe.worker.ask import Answer, Ask
from rocmprobe.worker.compare import errors, unequal
from rocmprobe.worker.tensors import integers, run, uniform


def convolution(ask: Ask) -> Answer:
    """Judged against the same direction in fp64 on the CPU, outside the setting."""
    import torch

    problem, direction = ask.the_problem, ask.direction or "fwd"
    operands = uniform(problem, ask.dtype, ask.seed())
    reference = run(problem, direction, operands)
    placed = ask.placed(lambda: operands.to(ask.device, ask.dtype, problem))
    result, first_seconds = ask.first_call(lambda: run(problem, direction, placed))
    again, steady_seconds = ask.steady_call(lambda: run(problem, direction, placed))
    answer = Answer(timings={"first_call": first_seconds, "steady": steady_seconds})
    for name, expected in reference.items():
        right, numbers, why = judge_float(errors(result[name], expected), ask.dtype_name)
        if not right:
            answer.state, answer.message = "wrong", f"{name}: {why}"
        if not right or not answer.numerics:
            answer.numerics = {"of": name, **numbers}
    answer.numerics["repeatable"] = all(torch.equal(result[name], again[name]) for name in reference)
    _exact_tier(ask, direction, answer)
    return answer


def _exact_tier(ask: Ask, direction: str, answer: Answer) -> None:
    """Integer operands: every element equal, or wrong where the implementation owes exactness."""
    problem = ask.the_problem
    terms = problem.terms(direction)
    operands = integers(problem, direction, exact_fill(ask.dtype_name, terms), ask.seed())
    reference = run(problem, direction, operands)
    placed = ask.placed(lambda: operands.to(ask.device, ask.dtype, problem))
    result, _ = ask.steady_call(lambda: run(problem, direction, placed))
    bad = sum(unequal(result[name], expected) for name, expected in reference.items())
    answer.numerics["exact"] = bad == 0
    answer.numerics["exact_demanded"] = ask.exact
    if bad and ask.exact and answer.state == "pass":
        answer.state = "wrong"
        answer.message = f"exact tier: {bad} elements differ where sums of {terms} integers are exact"
