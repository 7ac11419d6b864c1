"""A layer or operator held against itself in fp64 on the CPU: its results and its gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

from rocmprobe.checks.tools.compare import errors
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.model.numerics import LAYER_LIMITS

#: Layers whose gradients nearly cancel (batch norm, training) are measured on a scale of at least 1.
UNIT = 1.0
TINY = 1e-30

#: (name, result, reference) of what is compared.
Compared = Iterable[tuple[str, Any, Any]]


def uniform(context: CheckContext, shapes: Sequence[Sequence[int]]) -> list[Any]:
    """Operands uniform in [-1, 1), rounded to the requested dtype and held as fp64 on the CPU."""
    import torch

    generator = torch.Generator().manual_seed(context.seed())
    drawn = [torch.rand(tuple(shape), generator=generator, dtype=torch.float64) * 2 - 1 for shape in shapes]
    return [tensor.to(context.dtype).to(torch.float64) for tensor in drawn]


def compare(
    context: CheckContext,
    drawn: Sequence[Any],
    call: Callable[..., Mapping[str, Any]],
    least: float = TINY,
    reference: Callable[..., Mapping[str, Any]] | None = None,
) -> CheckResult:
    """``call`` of the operands on the device under the setting, against ``reference`` (``call`` itself
    unless given) of the same in fp64 on the CPU; both give results by name."""
    expected = (reference or call)(*drawn)
    placed = context.placed(lambda: [tensor.to(context.device, context.dtype) for tensor in drawn])
    result, seconds = context.first_call(lambda: call(*placed))
    compared = ((name, result[name], expected[name].detach()) for name in expected)
    return held(
        compared, CheckResult(timings={"first_call": seconds}), LAYER_LIMITS[context.dtype_name], least
    )


def held(compared: Compared, answer: CheckResult, limit: float, least: float = UNIT) -> CheckResult:
    """Hold every result against ``limit``; ``answer`` gets the worst."""
    worst, where = 0.0, ""
    for name, result, reference in compared:
        measured = errors(result, reference)
        error = math.inf if measured.non_finite else measured.max_error / max(measured.max_reference, least)
        if error >= worst:
            worst, where = error, name
    answer.numerics.update(max_error=worst, max_error_limit=limit, of=where)
    if not worst <= limit:
        answer.state, answer.message = "wrong", f"{where}: error {worst:.2g}, the limit is {limit:.2g}"
    return answer


def with_gradients(output: Any, leaves: Mapping[str, Any], grad: Any) -> dict[str, Any]:
    """``output`` and the gradients of ``leaves`` for the gradient ``grad`` of it, by name."""
    import torch

    gradients = torch.autograd.grad(output, list(leaves.values()), grad)
    named = {f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients)}
    return {"output": output.detach(), **named}


def leaf(tensor: Any) -> Any:
    return tensor.detach().requires_grad_()
