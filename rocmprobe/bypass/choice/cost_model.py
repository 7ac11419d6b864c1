"""Cost model: the expected time of a plan, from the chip and the plan's bytes, products and launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch

from rocmprobe.bypass.algorithms import ALGORITHMS, Plan, Task
from rocmprobe.geometry import BWD_DATA


@dataclass(frozen=True)
class Rates:
    """Throughput of a device: flops per second, bytes copied per second, and seconds per kernel launch."""

    flops: float
    bytes: float
    launch: float

    def seconds(self, plan: Plan) -> float:
        """Return the expected seconds of ``plan``: arithmetic, copies and kernel launches."""
        sums = plan.flops / (self.flops * plan.gemm_share)
        return sums + plan.moved_bytes / self.bytes + plan.launches * self.launch


#: Rounded rates of a two-core CPU, and of an RX 5600 XT with ``_COMPUTE_UNITS``. The rates are not measured,
#: so that the model chooses the same plan in every process. Only their ratios matter.
USUAL = {"cpu": Rates(1.5e11, 1.2e10, 6e-6), "cuda": Rates(5e12, 2e11, 8e-6)}
_COMPUTE_UNITS = 36


@cache
def rates_of(device: torch.device) -> Rates:
    """Return the expected rates of ``device``. A GPU with more compute units is faster at equal launches."""
    usual = USUAL[device.type]
    if device.type == "cpu":
        return usual
    size = torch.cuda.get_device_properties(device).multi_processor_count / _COMPUTE_UNITS
    return replace(usual, flops=size * usual.flops, bytes=size * usual.bytes)


def candidates(task: Task, algorithm: str = "auto") -> list[Plan]:
    """Return the plans of ``algorithm`` if it applies, else the plans of all algorithms.

    If all plans need more than ``task.cap`` bytes, return the plan that needs least. The list is never empty.
    """
    found = [plan for each in ALGORITHMS.values() if each.applies(task) for plan in each.cost(task)]
    if task.direction == BWD_DATA and set(task.plain.stride) == {1}:
        turned = task.flipped()
        found += [
            replace(plan, flipped=True, workspace_bytes=plan.workspace_bytes + task.weight_bytes)
            for each in ALGORITHMS.values()
            if each.applies(turned)
            for plan in each.cost(turned)
        ]
    within = [plan for plan in found if plan.workspace_bytes <= task.cap]
    found = within or [min(found, key=lambda plan: plan.workspace_bytes)]
    return [plan for plan in found if plan.algorithm == algorithm] or found


def ranked(plans: Sequence[Plan], rates: Rates) -> list[Plan]:
    """Return ``plans``, the fastest by the model first."""
    return sorted(plans, key=rates.seconds)
