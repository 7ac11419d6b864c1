"""What the bypass would do with a problem, and why. Computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rocmprobe.bypass import plan_file
from rocmprobe.bypass.algorithms import Operands, Plan
from rocmprobe.bypass.geometry import BWD_DATA, BWD_WEIGHTS, FWD
from rocmprobe.bypass.plan import MEGABYTE, by_model, eligible, name, plain_direction, plain_form
from rocmprobe.bypass.rates import USUAL


@dataclass(frozen=True)
class Explanation:
    """One direction of a problem.

    Attributes:
        algorithm: what is taken.
        why: one sentence.
        workspace_bytes: the upper bound on what it allocates above operands and results.
        flops: its multiplications and additions.
        alternatives: the plans of all algorithms that may be taken, the quickest by the cost model first.
    """

    algorithm: str
    why: str
    workspace_bytes: int
    flops: int
    alternatives: tuple[Plan, ...]


def explain_problem(
    problem: Any, device: torch.device, workspace_mb: float, algorithm: str
) -> dict[str, Explanation]:
    """As :func:`rocmprobe.bypass.explain`, with all that it leaves open decided."""
    value = problem.__getitem__ if isinstance(problem, Mapping) else lambda key: getattr(problem, key)
    plain = plain_form(
        value("input_shape"), value("weight_shape"), stride=value("stride"), padding=value("padding"),
        dilation=value("dilation"), transposed=value("transposed"),
        output_padding=value("output_padding") if value("transposed") else None, groups=value("groups"),
    )  # fmt: skip
    operands = Operands(str(value("dtype")), device.type, value("channels_last"), dense=True)
    cap = int(workspace_mb * MEGABYTE)
    deterministic = torch.are_deterministic_algorithms_enabled()
    found = {}
    for direction in (FWD, BWD_DATA, BWD_WEIGHTS):
        turned = plain_direction(direction, value("transposed"))
        plans = eligible(turned, plain, operands, cap, algorithm, deterministic)
        kept = None if deterministic else plan_file.kept(device, name(turned, plain, operands, cap))
        found[direction] = _explained(plans, kept, algorithm, device.type)
    return found


def _explained(plans: list[Plan], kept: str | None, algorithm: str, device_type: str) -> Explanation:
    measured = next((plan for plan in plans if plan.algorithm == kept), None)
    plan = measured or by_model(plans, device_type)
    if plan.algorithm == algorithm:
        why = "it was named"
    elif len(plans) == 1:
        why = "no other one applies"
    elif measured is not None:
        why = f"it was the quickest when {len(plans)} that apply were measured on this device"
    else:
        why = f"the cost model takes it for the quickest of {len(plans)} that apply; not measured yet"
    return Explanation(
        plan.algorithm,
        why,
        plan.workspace_bytes,
        plan.flops,
        tuple(sorted(plans, key=USUAL[device_type].seconds)),
    )
