"""Choice of the fastest plan for a problem, by measurement or by the cost model.

The choice stays the same until the process ends, because algorithms round differently. The cost model decides
while a graph is captured, and in PyTorch's deterministic mode.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Callable

import torch

from rocmprobe.bypass import own_kernels
from rocmprobe.bypass.algorithms import Operands, Plan
from rocmprobe.bypass.choice import plan_file
from rocmprobe.bypass.choice.plan import MEGABYTE, check, eligible, plain_direction, plain_form, problem_key
from rocmprobe.bypass.choice.rates import USUAL, measured, seconds
from rocmprobe.bypass.operators import capturing, lock_across_forks
from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD

VARIABLE = "ROCMPROBE_BYPASS_MEASURE"

#: A plan is not measured if the cost model expects it to take this many times as long as the fastest plan.
_PROMISING = 6.0
_REPEATS = 3
#: A plan gets no third run if its second run takes this many times as long as the best plan so far.
_HOPELESS = 1.5
#: Seconds after which no further measurement for a problem starts.
_BUDGET = 1.0
#: After this many seconds of measurements in total, a process uses only the cost model. Otherwise a program
#: whose problems rarely repeat (e.g. with images of many sizes) would never stop measuring.
_ALLOWANCE = 60.0


class _Measurements:
    """Lock for measurements, and their total duration in seconds."""

    def __init__(self) -> None:
        self.lock = lock_across_forks()
        self.seconds = 0.0


_measurements = _Measurements()


class Choice:
    """Plans for one direction of one problem, and the choice among them.

    Args:
        problem: key of the problem in the plan file.
        plans: at least one plan.

    Attributes:
        plans: plans, the fastest by the cost model first.
        settled: the chosen plan, or None before the choice.
    """

    def __init__(self, problem: str, plans: Sequence[Plan], device: torch.device) -> None:
        self._problem = problem
        self._device = device
        by_rule = not measures()
        kept = None if by_rule or len(plans) == 1 else plan_file.load(device, problem)
        self.settled = next((plan for plan in plans if plan.name == kept), None)
        asked = self.settled is not None or len(plans) == 1 or by_rule or capturing(device)
        rates = USUAL[device.type] if asked else measured(device)
        self.plans = sorted(plans, key=rates.seconds)
        if by_rule or len(plans) == 1:
            self.settled = self.plans[0]

    def plan(self, run: Callable[[Plan], None]) -> Plan:
        """Return the chosen plan.

        The first call can measure plans with ``run``, which computes the problem with a given plan.
        """
        if self.settled is None:
            # A second thread waits for the plan of the first thread, because a second measurement could
            # choose another plan.
            with _measurements.lock:
                if self.settled is None:
                    self.settled = self._found_out(run)
        return self.settled

    def _found_out(self, run: Callable[[Plan], None]) -> Plan:
        if capturing(self._device) or _measurements.seconds > _ALLOWANCE:
            return self.plans[0]
        started = time.perf_counter()
        try:
            return self._quickest(run)
        finally:
            _measurements.seconds += time.perf_counter() - started

    def _quickest(self, run: Callable[[Plan], None]) -> Plan:
        model = measured(self._device).seconds
        plans = sorted(self.plans, key=model)
        ends = time.perf_counter() + _BUDGET
        least: dict[str, float] = {}
        failed = False
        for plan in plans:
            if model(plan) > _PROMISING * model(plans[0]) or time.perf_counter() > ends:
                break
            try:
                least[plan.name] = self._fastest_seconds(plan, run, min(least.values(), default=inf), ends)
            except RuntimeError:
                # The plan most likely ran out of memory. Another plan can need less memory.
                failed = True
        best = min(plans, key=lambda plan: least.get(plan.name, inf))
        # Do not store a choice without a comparison. Do not store a choice after a failure, because the same
        # plan can succeed in another process, e.g. with more free memory.
        if len(least) > 1 and not failed:
            plan_file.store(self._device, self._problem, best.name)
        return best

    def _fastest_seconds(self, plan: Plan, run: Callable[[Plan], None], best: float, ends: float) -> float:
        """Run ``plan`` two to four times, and return the shortest time in seconds.

        ``best`` is the shortest time of another plan. If ``plan`` is much slower, run it only twice. ``ends``
        is a time of ``time.perf_counter``, after which no third or fourth run starts.
        """
        first, *times = [seconds(self._device, lambda: run(plan)) for _ in range(2)]
        while len(times) < _REPEATS and times[0] < _HOPELESS * best and time.perf_counter() < ends:
            times.append(seconds(self._device, lambda: run(plan)))
        return min(first, *times)


def measures() -> bool:
    """Return True if plans are chosen by measurement."""
    return os.environ.get(VARIABLE, "1") != "0" and not torch.are_deterministic_algorithms_enabled()


@dataclass(frozen=True)
class Explanation:
    """The chosen algorithm for one direction of a problem, and the reason.

    Attributes:
        variant: name of one of rocmprobe's own kernels, or "" for an algorithm without variants.
        why: reason for the choice.
        workspace_bytes: upper bound on the bytes allocated in addition to operands and results.
        alternatives: all considered plans, the fastest by the cost model first.
        own_kernels: "used", or the reason why rocmprobe's own kernels cannot be chosen.
    """

    algorithm: str
    variant: str
    why: str
    workspace_bytes: int
    flops: int
    alternatives: tuple[Plan, ...]
    own_kernels: str


def explain_problem(
    problem: Any, device: torch.device, workspace_mb: float, algorithm: str
) -> dict[str, Explanation]:
    """Return the choice for each direction of a problem, without measuring plans."""
    value = problem.__getitem__ if isinstance(problem, Mapping) else lambda key: getattr(problem, key)
    plain = plain_form(
        value("input_shape"), value("weight_shape"), stride=value("stride"), padding=value("padding"),
        dilation=value("dilation"), transposed=value("transposed"),
        output_padding=value("output_padding") if value("transposed") else None, groups=value("groups"),
    )  # fmt: skip
    dtype = str(value("dtype"))
    check(dtype, device.type, algorithm)
    refusal = own_kernels.refusal(device, dtype)
    module = own_kernels.module(device, dtype)
    operands = Operands(dtype, device.type, value("channels_last"), dense=True, own_kernels=module)
    cap = int(workspace_mb * MEGABYTE)
    found = {}
    for direction in (FWD, BWD_DATA, BWD_WEIGHTS):
        turned = plain_direction(direction, value("transposed"))
        plans = eligible(turned, plain, operands, cap, algorithm)
        choice = Choice(problem_key(turned, plain, operands, cap, algorithm), plans, device)
        found[direction] = _explained(choice, algorithm, refusal or "used")
    return found


def _explained(choice: Choice, algorithm: str, kernels: str) -> Explanation:
    plan = choice.settled or choice.plans[0]
    count = len(choice.plans)
    if plan.algorithm == algorithm:
        why = "it was requested by name"
    elif count == 1:
        why = "no other algorithm applies"
    elif measures() and choice.settled:
        why = f"it was the fastest algorithm measured on this device ({count} support the problem)"
    else:
        why = f"the cost model ranks it fastest of {count} algorithms; not measured"
    return Explanation(
        plan.algorithm, plan.variant, why, plan.workspace_bytes, plan.flops, tuple(choice.plans), kernels
    )
