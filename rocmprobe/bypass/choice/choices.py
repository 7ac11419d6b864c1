"""Choice of the plan for a task. The choice stays the same until the process ends.

The cost model chooses. A measurement in the first call overrules it if another plan is clearly faster. On a
GPU, a plan must first prove that it is exact there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Callable, Optional

import torch

from rocmprobe.bypass import kernel_modules
from rocmprobe.bypass.algorithms import ALGORITHMS, Plan, Task
from rocmprobe.bypass.algorithms.algorithm import ELEMENT_BYTES
from rocmprobe.bypass.choice import plan_file, proof
from rocmprobe.bypass.choice.cost_model import USUAL, candidates, ranked, rates_of
from rocmprobe.bypass.choice.settings import MEGABYTE, check_known
from rocmprobe.bypass.choice.timing import fastest, seconds
from rocmprobe.bypass.operators import capturing, lock_across_forks
from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry, geometry

VARIABLE = "ROCMPROBE_BYPASS_MEASURE"

#: A plan is not measured if the cost model expects it to take this many times as long as the fastest plan.
_PROMISING = 6.0
_REPEATS = 3
#: A plan is not measured again if its first run takes this many times as long as the fastest first run.
_HOPELESS = 1.5
#: Seconds after which no further measurement for a problem starts.
_BUDGET = 1.0
#: After this many seconds of measurements in total, a process uses only the cost model. Otherwise a program
#: whose problems rarely repeat (e.g. with images of many sizes) would never stop measuring.
_ALLOWANCE = 60.0

Operands = tuple[torch.Tensor, torch.Tensor, Optional[torch.Tensor], torch.Tensor]


class _Measurements:
    """Lock for measurements, and their total duration in seconds."""

    def __init__(self) -> None:
        self.lock = lock_across_forks()
        self.seconds = 0.0


_measurements = _Measurements()


def compute(
    plan: Plan, image: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor], feature: torch.Tensor
) -> None:
    """Compute the task of ``plan``: write the image, the weight or the feature."""
    algorithm = ALGORITHMS[plan.algorithm]
    if plan.flipped:
        algorithm.forward(plan, feature, _flipped(weight, plan.task.plain), bias, image)
    elif plan.task.direction == FWD:
        algorithm.forward(plan, image, weight, bias, feature)
    else:
        algorithm.backward(plan, image, weight, bias, feature)


def _flipped(weight: torch.Tensor, turned: Geometry) -> torch.Tensor:
    """Return the weight of the flipped convolution ``turned``: channels and filters of a group swapped."""
    spatial = weight.dim() - 2
    if turned.groups == 1:
        return weight.flip(tuple(range(2, 2 + spatial))).transpose(0, 1)
    grouped = weight.reshape(turned.groups, turned.channels // turned.groups, *weight.shape[1:])
    swapped = grouped.flip(tuple(range(3, 3 + spatial))).transpose(1, 2)
    return swapped.reshape(turned.filters, turned.channels // turned.groups, *turned.kernel)


class Choice:
    """The plan for a task on a device.

    Args:
        algorithm: "auto", or the name of the algorithm to use if it applies.

    Attributes:
        plans: the fastest by the cost model first.
        plan: the chosen plan, or None before the choice.
        measured: True if plans were measured, in this process or an earlier one.
    """

    def __init__(self, task: Task, device: torch.device, algorithm: str) -> None:
        self._task = task
        self._device = device
        self._key = task.key() + ("" if algorithm == "auto" else f" {algorithm}")
        self.plans = ranked(candidates(task, algorithm), rates_of(device))
        self.plan: Optional[Plan] = None
        self._failure: Optional[RuntimeError] = None
        kept = plan_file.choice(device, self._key) if measures() and len(self.plans) > 1 else None
        self._kept = next((plan for plan in self.plans if plan.name == kept), None)
        self.measured = self._kept is not None
        if device.type not in proof.DEVICE_TYPES:
            by_rule = len(self.plans) == 1 or not measures()
            self.plan = self._kept or (self.plans[0] if by_rule else None)

    def settle(self, *operands: Any) -> Plan:
        """Return the plan. The first call can prove and measure plans on ``operands``.

        ``operands`` are image, weight, bias and feature. The task's result can be overwritten.

        Raises:
            RuntimeError: if no plan can be used.
        """
        # A second thread waits for the choice of the first thread, because a second measurement could choose
        # another plan.
        with _measurements.lock:
            if self.plan is None:
                self.plan = self._settled(operands, capturing(self._device))
        return self.plan

    def _settled(self, operands: Sequence[Any], capture: bool) -> Plan:
        plans = self._in_order()
        first = next((plan for plan in plans if self._is_exact(plan, operands, capture)), None)
        if first is None:
            raise RuntimeError(self._no_plan(capture)) from self._failure
        by_rule = self._kept is not None or len(plans) == 1 or not measures()
        if by_rule or capture or _measurements.seconds > _ALLOWANCE:
            return first
        rates = rates_of(self._device)
        limit = _PROMISING * rates.seconds(first)
        others = [plan for plan in plans if plan is not first and rates.seconds(plan) <= limit]
        return self._measured(
            [first, *(plan for plan in others if self._is_exact(plan, operands, capture))], operands
        )

    def expected(self) -> Plan:
        """Return the chosen plan, or the plan that would be chosen without proofs and measurements."""
        return self.plan or self._in_order()[0]

    def _in_order(self) -> list[Plan]:
        return sorted(self.plans, key=lambda plan: plan is not self._kept)

    def _no_plan(self, capture: bool) -> str:
        if capture:
            return (
                "rocmprobe.bypass: a convolution in a captured graph was not computed before. "
                "Run the program once without capture."
            )
        return f"rocmprobe.bypass: no algorithm is exact for {self._key} on {self._device}"

    def _is_exact(self, plan: Plan, operands: Sequence[Any], capture: bool) -> bool:
        """Return True if ``plan`` may be used on this device. Without a stored result, prove it."""
        if self._device.type not in proof.DEVICE_TYPES:
            return True
        known = plan_file.fault(self._device, self._task.key(), plan.name)
        if known is None:
            if capture:
                return False
            try:
                known = proof.fault(self._task, lambda *each: compute(plan, *each), *operands)
            except RuntimeError as failure:
                # The plan most likely ran out of memory. It can succeed in another process.
                self._failure = failure
                return False
            plan_file.store_fault(self._device, self._task.key(), plan.name, known)
        return not known

    def _measured(self, plans: Sequence[Plan], operands: Sequence[Any]) -> Plan:
        started = time.perf_counter()
        try:
            return self._fastest(plans, operands)
        finally:
            _measurements.seconds += time.perf_counter() - started

    def _fastest(self, plans: Sequence[Plan], operands: Sequence[Any]) -> Plan:
        running = list(plans)
        ends = time.perf_counter() + _BUDGET
        times: dict[str, list[float]] = {plan.name: [] for plan in running}
        failed = False
        # Plans take turns, so that other load affects all of them. The first turn only warms up.
        for turn in range(1 + _REPEATS):
            for plan in list(running):
                if turn > 1 and time.perf_counter() > ends:
                    break
                try:
                    taken = seconds(self._device, lambda plan=plan: compute(plan, *operands))  # type: ignore[misc]
                except RuntimeError:
                    # The plan most likely ran out of memory. Another plan can need less memory.
                    failed = True
                    running.remove(plan)
                    continue
                if turn:
                    times[plan.name].append(taken)
            if turn == 1 and running:
                least = _HOPELESS * min(times[plan.name][0] for plan in running)
                running = [plan for plan in running if plan is plans[0] or times[plan.name][0] < least]
        if not running:
            return plans[0]
        best = running[fastest([times[plan.name] for plan in running])]
        # Do not store a choice without a comparison. Do not store a choice after a failure, because the same
        # plan can succeed in another process, e.g. with more free memory.
        if len(times) > 1 and not failed:
            plan_file.store_choice(self._device, self._key, best.name)
        self.measured = True
        return best


def measures() -> bool:
    """Return True if plans are measured."""
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
    dtype = str(value("dtype"))
    check_known(dtype, ELEMENT_BYTES, "dtype")
    check_known(device.type, USUAL, "device type")
    refusal = kernel_modules.refusal(device, dtype)
    found = {}
    for direction in (FWD, BWD_DATA, BWD_WEIGHTS):
        task = task_of(value, direction, dtype, device.type, int(workspace_mb * MEGABYTE))
        choice = Choice(replace(task, kernels=kernel_modules.module(device, dtype)), device, algorithm)
        found[direction] = _explained(choice, algorithm, refusal or "used")
    return found


def task_of(value: Callable[[str], Any], direction: str, dtype: str, device_type: str, cap: int) -> Task:
    """Return one direction of the problem whose fields ``value`` returns, with dense operands.

    A 1-d problem becomes a 2-d problem of height 1.

    Raises:
        ValueError: if PyTorch would reject the problem, or if the output is empty.
    """
    transposed = value("transposed")
    shapes = [tuple(value(name)) for name in ("input_shape", "weight_shape")]
    extra = tuple(value("output_padding")) if transposed else None
    stride, padding, dilation = (tuple(value(name)) for name in ("stride", "padding", "dilation"))
    if len(shapes[1]) == 3:
        shapes = [(*shape[:2], 1, *shape[2:]) for shape in shapes]
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
        extra = None if extra is None else (0, *extra)
    plain = geometry(
        *shapes, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
        output_padding=extra, groups=value("groups"),
    )  # fmt: skip
    return Task(
        plain_direction(direction, transposed), plain, dtype, device_type, value("channels_last"), True, cap
    )


def plain_direction(direction: str, transposed: bool) -> str:
    """Return ``direction``, with fwd and bwd-data swapped if the convolution is ``transposed``."""
    return {FWD: BWD_DATA, BWD_DATA: FWD}.get(direction, direction) if transposed else direction


def _explained(choice: Choice, algorithm: str, kernels: str) -> Explanation:
    plan = choice.expected()
    count = len(choice.plans)
    if plan.algorithm == algorithm:
        why = "it was requested by name"
    elif count == 1:
        why = "no other algorithm applies"
    elif choice.measured:
        why = f"measured on this device: none of the other {count - 1} plans is clearly faster"
    else:
        why = f"the cost model ranks it fastest of {count} plans; not measured"
    return Explanation(
        plan.algorithm, plan.variant, why, plan.workspace_bytes, plan.flops, tuple(choice.plans), kernels
    )
