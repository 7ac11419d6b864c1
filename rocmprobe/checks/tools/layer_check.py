"""Declaration of checks that compare a layer or operator to fp64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rocmprobe.checks.check import Check
from rocmprobe.checks.tools.compare import compare
from rocmprobe.checks.tools.computation import UNIT, Computation, Named, layer
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.model.numerics import LAYER_LIMITS
from rocmprobe.model.results import Outcome


def layer_check(
    name: str,
    draw: partial[Named],
    call: Callable[..., Named],
    least: float = UNIT,
    limits: Mapping[str, float] = LAYER_LIMITS,
    in_template: bool = False,
    **declared: Any,  # fields of Check
) -> Check:
    """Return a check that compares a layer or operator to fp64 on the CPU.

    ``in_template`` is True if the template of ``rocmprobe repro`` has ``call``.
    """

    def function(context: CheckContext) -> CheckResult:
        return compare(context, layer(context.dtype_name, draw, call, least, limits=limits))

    def script(outcome: Outcome) -> Computation:
        return layer(outcome.dtype, draw, call, least, limits=limits)

    return Check(name, function=function, script=script if in_template else None, **declared)
