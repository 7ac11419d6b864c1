"""What the bypass would do with a problem, and why. The problem itself is not computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rocmprobe.bypass.algorithms import Operands, Plan
from rocmprobe.bypass.choice.choices import Choice, measures
from rocmprobe.bypass.choice.plan import MEGABYTE, check, eligible, name, plain_direction, plain_form
from rocmprobe.bypass.geometry import BWD_DATA, BWD_WEIGHTS, FWD


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
    dtype = str(value("dtype"))
    check(dtype, device.type, algorithm)
    operands = Operands(dtype, device.type, value("channels_last"), dense=True)
    cap = int(workspace_mb * MEGABYTE)
    deterministic = torch.are_deterministic_algorithms_enabled()
    found = {}
    for direction in (FWD, BWD_DATA, BWD_WEIGHTS):
        turned = plain_direction(direction, value("transposed"))
        plans = eligible(turned, plain, operands, cap, algorithm, deterministic)
        choice = Choice(name(turned, plain, operands, cap, algorithm), plans, device)
        found[direction] = _explained(choice, algorithm)
    return found


def _explained(choice: Choice, algorithm: str) -> Explanation:
    plan = choice.settled or choice.plans[0]
    count = len(choice.plans)
    if plan.algorithm == algorithm:
        why = "it was named"
    elif count == 1:
        why = "no other one applies"
    elif measures() and choice.settled:
        why = f"it was the quickest of those of {count} that were measured on this device"
    else:
        why = f"the cost model takes it for the quickest of {count} that apply; not measured"
    return Explanation(plan.algorithm, why, plan.workspace_bytes, plan.flops, tuple(choice.plans))
