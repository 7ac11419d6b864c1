"""Comparison of results with their references in fp64 on the CPU."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Optional

from rocmprobe.checks.tools.computation import (
    UNIT,
    Computation,
    bound_ratio,
    max_error,
    max_ratio,
    one_thread,
    rms_range,
)
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.model.numerics import Errors, ulp

if TYPE_CHECKING:
    from torch import Tensor

_UNIT_ERROR = partial(max_error, least=UNIT)
_MAP_ROWS, _MAP_COLUMNS = 16, 64


@one_thread()
def errors(result: Tensor, reference: Tensor, bound: Optional[Tensor] = None) -> Errors:
    """Return the errors of ``result`` compared to ``reference``, an fp64 tensor on the CPU.

    ``bound`` has an error bound for each element. Raise ValueError if the shapes differ.
    """
    import torch

    _require_same_shape(result, reference)
    actual = result.detach().to("cpu", torch.float64)
    if not actual.numel():
        return Errors(0, 0.0, 0.0, 0.0, 0.0, 0)
    broken = ~torch.isfinite(actual) & torch.isfinite(reference)
    usable = torch.where(broken, torch.zeros_like(actual), actual)
    return Errors(
        count=actual.numel(),
        rms_range=rms_range(usable, reference),
        max_ratio=max_ratio(usable, reference),
        max_result=float(usable.abs().max()),
        max_reference=float(reference.abs().max()),
        non_finite=int(broken.sum()),
        constant=_constant(usable) and not _constant(reference.to(result.dtype)),
        bound_ratio=None if bound is None else bound_ratio(usable, reference, bound),
    )


def _require_same_shape(result: Tensor, reference: Tensor) -> None:
    if tuple(result.shape) != tuple(reference.shape):
        raise ValueError(f"shape {tuple(result.shape)} instead of {tuple(reference.shape)}")


def _constant(tensor: Tensor) -> bool:
    return bool(tensor.min() == tensor.max())


#: (name, result, reference) for each result to compare.
Compared = Iterable[tuple[str, "Tensor", "Tensor"]]


def compare(context: CheckContext, computation: Computation) -> CheckResult:
    """Run the computation on the device, and compare the results to fp64 on the CPU."""
    compared, seconds = _computed(context, computation)
    (measure,) = computation.measures
    answer = CheckResult(timings={"first_call": seconds})
    return check_errors(compared, answer, computation.limit("max_error"), measure)


def compare_exactly(
    context: CheckContext, computation: Computation, what: str = "elements differ"
) -> CheckResult:
    """Run the computation on the device, and require results equal to the reference.

    The message of a failure is the number of differences, followed by ``what``.
    """
    compared, seconds = _computed(context, computation)
    (count,) = computation.measures
    with one_thread():
        wrong = sum(int(count(result, reference)) for _, result, reference in compared)
    state, message = ("wrong", f"{wrong} {what}") if wrong else ("pass", "")
    return CheckResult(state, message, timings={"first_call": seconds})


def compare_each_exactly(context: CheckContext, computation: Computation) -> CheckResult:
    """Run the computation on the device, and list each result that differs from the reference."""
    compared, seconds = _computed(context, computation)
    (count,) = computation.measures
    wrong = {}
    with one_thread():
        for name, result, reference in compared:
            if result.shape != reference.shape:
                wrong[name] = f"shape {tuple(result.shape)} instead of {tuple(reference.shape)}"
            elif differing := int(count(result, reference)):
                wrong[name] = f"{differing} of {reference.numel()} elements differ"
    message = "; ".join(f"{name}: {what}" for name, what in wrong.items())
    return CheckResult("wrong" if wrong else "pass", message, timings={"first_call": seconds})


def _computed(context: CheckContext, computation: Computation) -> tuple[Compared, float]:
    """Run the computation, and return (results to compare, seconds of the call)."""
    operands = computation.operands(context.dtype, context.seed())
    expected = computation.expected(operands)
    placed = context.placed(lambda: computation.placed(operands, context.device, context.dtype))
    results, seconds = context.first_call(lambda: computation.call(**placed))
    return [(name, results[name], reference.detach()) for name, reference in expected.items()], seconds


def check_errors(
    compared: Compared, answer: CheckResult, limit: float, measure: Callable[..., float] = _UNIT_ERROR
) -> CheckResult:
    """Store the largest error of all results in ``answer``, and return ``answer``.

    If the error exceeds ``limit``, the state becomes "wrong".
    """
    worst, where = 0.0, ""
    for name, result, reference in compared:
        _require_same_shape(result, reference)
        with one_thread():
            error = measure(result, reference)
        error = math.inf if math.isnan(error) else error
        if error >= worst:
            worst, where = error, name
    answer.numerics.update(max_error=worst, max_error_limit=limit, of=where)
    if not worst <= limit:
        answer.state, answer.message = "wrong", f"{where}: error {worst:.2g}, the limit is {limit:.2g}"
    return answer


def bad_elements(
    name: str, result: Tensor, reference: Tensor, bad: Tensor
) -> tuple[dict[str, Any], list[str]]:
    """Describe the worst element of ``result`` in numbers and in lines of text.

    The mask ``bad`` marks incorrect elements. If any are marked, add their fraction and an error map.
    ``name`` is "output", "input", "weight" or "bias".
    """
    import torch

    actual = result.detach().to("cpu", torch.float64)
    # An element that is not finite is worse than any other.
    difference = torch.nan_to_num((actual - reference).abs(), nan=math.inf)
    of_bad = torch.where(bad, difference, torch.full_like(difference, -1))
    place = int((of_bad if bool(bad.any()) else difference).argmax())
    actually, right = float(actual.flatten()[place]), float(reference.flatten()[place])
    expected = right if math.isfinite(right) else str(right)
    worst: dict[str, Any] = {"index": index_of(place, tuple(reference.shape)), "reference": expected}
    description = f"worst element of {name}, {worst['index']}: {actually:.8g} instead of {right:.8g}"
    if math.isfinite(actually):
        worst["result"] = actually
    else:
        worst["result"] = str(actually)
    if math.isfinite(actually - right):
        worst.update(ulps=abs(actually - right) / ulp(right, str(result.dtype).rpartition(".")[2]))
        description += f", {worst['ulps']:.3g} ulp"
    if not bool(bad.any()):
        # No element has too large an error, but the mean error of all elements is too large.
        return {"worst": worst}, [description]
    share = float(bad.to(torch.float64).mean())
    description += f"; {share:.2%} of {reference.numel()} elements are wrong"
    return {"worst": worst, "bad_share": share}, [description, *error_map(bad, 0 if name == "weight" else 1)]


def index_of(place: int, shape: tuple[int, ...]) -> list[int]:
    """Convert a position in the flattened tensor to an index."""
    index = []
    for size in reversed(shape):
        place, at = divmod(place, size)
        index.append(at)
    return index[::-1]


def error_map(bad: Tensor, channel_dimension: int) -> list[str]:
    """Draw the mask as a legend and at most 16 lines of text.

    Rows are channels, and columns are all other positions in memory order.
    """
    import torch
    import torch.nn.functional as F

    table = bad.to(torch.float64)
    table = table[None] if table.dim() < 2 else table.movedim(channel_dimension, 0).flatten(1)
    channels, positions = table.shape
    rows, columns = min(channels, _MAP_ROWS), min(positions, _MAP_COLUMNS)
    shares = F.adaptive_avg_pool2d(table[None], (rows, columns))[0].tolist()
    legend = (
        f"error map: {rows} row(s) over {channels} channel(s), {columns} column(s) over {positions} "
        "position(s); . ok, + partly wrong, # wrong"
    )
    marks = ("".join("." if share == 0 else "#" if share > 0.999 else "+" for share in row) for row in shares)
    return [legend, *(f"{row * channels // rows:>6} {line}" for row, line in enumerate(marks))]
