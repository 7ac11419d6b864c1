"""Which of the plans for a problem to take: by the cost model at first, by measurement when it comes again.

What was measured is kept for the process, and in the plan file for the next ones. While a graph is captured
or PyTorch is to be deterministic nothing is measured; with usual rates for the model, the same problem then
always gets the same algorithm.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Callable

import torch

from rocmprobe.bypass import plan_file
from rocmprobe.bypass.algorithms import Plan
from rocmprobe.bypass.rates import USUAL, measured, seconds

VARIABLE = "ROCMPROBE_BYPASS_MEASURE"

#: The call of a problem that measures: a problem that comes once or twice does not repay it.
_MEASURED_AT = 3
#: Plans that the model takes for slower than the best by this factor are not measured.
_PROMISING = 6.0
_REPEATS = 3
#: A plan is measured once only if it takes this many times the best so far.
_HOPELESS = 1.5
#: After so many seconds no other plan of a problem is begun.
_BUDGET = 1.0

#: Two measurements at a time would measure each other.
_measuring = threading.Lock()


class Choice:
    """The plans for one direction of one problem, and which of them to take.

    Args:
        problem: names it in the plan file.
        plans: at least one.
        device: where it is computed.
    """

    def __init__(self, problem: str, plans: Sequence[Plan], device: torch.device) -> None:
        self._problem = problem
        self._device = device
        self._calls = 0
        by_rule = torch.are_deterministic_algorithms_enabled() or not _allowed()
        rates = USUAL[device.type] if by_rule or _capturing(device) else measured(device)
        self._plans = sorted(plans, key=rates.seconds)
        kept = None if by_rule else plan_file.kept(device, problem)
        self._settled = next((plan for plan in self._plans if plan.algorithm == kept), None)
        if by_rule or len(plans) == 1:
            self._settled = self._plans[0]

    def plan(self, run: Callable[[Plan], None]) -> Plan:
        """The plan to take; ``run``, which computes the problem by a plan, may be called to find out."""
        if self._settled is not None:
            return self._settled
        self._calls += 1
        if self._calls < _MEASURED_AT or _capturing(self._device) or not _measuring.acquire(blocking=False):
            return self._plans[0]
        try:
            self._settled = self._quickest(run)
        finally:
            _measuring.release()
        plan_file.keep(self._device, self._problem, self._settled.algorithm)
        return self._settled

    def _quickest(self, run: Callable[[Plan], None]) -> Plan:
        def timed(plan: Plan) -> float:
            return seconds(self._device, lambda: run(plan))

        model = measured(self._device).seconds
        worth = _PROMISING * min(map(model, self._plans))
        best, least, spent = self._plans[0], float("inf"), 0.0
        for plan in self._plans:
            if spent > _BUDGET or model(plan) > worth:
                break
            try:
                # The first run pays for what later ones find ready.
                first, *times = timed(plan), timed(plan)
                if times[0] < _HOPELESS * least:
                    times += [timed(plan) for _ in range(_REPEATS - 1)]
            except RuntimeError:
                # Out of memory, most likely: what another plan needs may still be there.
                continue
            spent += first + sum(times)
            if min(times) < least:
                best, least = plan, min(times)
        return best


def _allowed() -> bool:
    return os.environ.get(VARIABLE, "1") != "0"


def _capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
