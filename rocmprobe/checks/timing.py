"""Checks that measure the time of convolution."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

from rocmprobe.checks.check import EVERY_DIRECTION, Check, Requires
from rocmprobe.checks.tools.computation import Named
from rocmprobe.checks.tools.context import CheckContext, CheckResult, deciles
from rocmprobe.checks.tools.failures import DeviceFailure, NotApplicable, out_of_memory
from rocmprobe.checks.tools.tensors import Tensors, operands_on_device, run
from rocmprobe.checks.tools.yardsticks import LONGEST_RUN, YARDSTICKS, Yardstick, has_naive, run_naive
from rocmprobe.model.results import DIRECTIONS

#: Number of untimed calls after the first call. Afterwards, allocators and caches are stable.
_WARM_UP = 2
#: Minimum number of timed runs of each call.
_LEAST = 5
#: Seconds for which one call is repeated before the next call has its turn. This is so short that all calls
#: run at the same clocks, but long enough for several runs.
_TURN = 0.005
#: Seconds of steady calls after a first call. The check runs in several processes, so a short time suffices.
STEADY_SECONDS = 0.2

Calls = dict[str, Callable[[], object]]


def throughput(context: CheckContext) -> CheckResult:
    """Measure the seconds of each convolution direction, and of forward plus backward by autograd.

    For comparison, also measure a matrix product, a copy and, on request, naive im2col.
    """
    operands = operands_on_device(context)
    own = _calls(context, run, operands)
    for call in own.values():
        context.first_call(call)
    with context.measured():
        return _measured(context, operands, own)


def _measured(context: CheckContext, operands: Tensors, own: Calls) -> CheckResult:
    problem = context.the_problem
    for call in own.values():
        with context.under_setting():
            for _ in range(_WARM_UP):
                call()
    answer = CheckResult(timings=_measure_in_turn(context, own, {}, 0))
    # The controller uses these times if a yardstick crashes or hangs.
    context.send_preliminary(answer)
    candidates = {name: partial(make, context) for name, make in YARDSTICKS.items()}
    if context.naive and has_naive(problem):
        for name, call in _calls(context, run_naive, operands).items():
            candidates[f"naive_{name}"] = partial(Yardstick, call)
    beside: dict[str, Yardstick] = {}
    for name, make in candidates.items():
        try:
            beside[name] = _try_yardstick(context, make)
        except (DeviceFailure, NotApplicable) as failure:
            answer.message = f"{name} was not timed: {failure.__cause__ or failure}"
    try:
        timings = _measure_in_turn(
            context, own, {name: yardstick.call for name, yardstick in beside.items()}, context.seconds
        )
    except DeviceFailure as failure:
        if not beside or not out_of_memory(failure.__cause__):
            raise
        beside.clear()
        answer.message = (
            "reference operations were not timed: they and the problem do not fit into memory together"
        )
        timings = _measure_in_turn(context, own, {}, context.seconds)
    amounts = {
        f"{name}_{yardstick.unit}": yardstick.amount for name, yardstick in beside.items() if yardstick.unit
    }
    answer.timings = {**timings, **amounts}
    return answer


def _calls(context: CheckContext, compute: Callable[..., Named], operands: Tensors) -> Calls:
    import torch

    problem = context.the_problem

    def forward_and_backward() -> None:
        leaves = [operands.input.detach().requires_grad_(), operands.weight.detach().requires_grad_()]
        held = Tensors(leaves[0], leaves[1], operands.bias, operands.grad)
        torch.autograd.grad(compute(problem, "fwd", held)["output"], leaves, operands.grad)

    directions = DIRECTIONS if context.direction is None else (context.direction,)
    calls: Calls = {
        direction.replace("-", "_"): partial(compute, problem, direction, operands)
        for direction in directions
    }
    return calls if context.direction else {**calls, "fwd_bwd": forward_and_backward}


def _try_yardstick(context: CheckContext, make: Callable[[], Yardstick]) -> Yardstick:
    """Make a yardstick, and run it twice.

    Raise DeviceFailure if the yardstick fails, and NotApplicable if a run takes too long.
    """
    context.report_phase("yardstick")
    with context.under_setting():
        yardstick = make()
        yardstick.call()
    started = time.perf_counter()
    with context.under_setting():
        yardstick.call()
    seconds = time.perf_counter() - started
    if seconds > LONGEST_RUN:
        raise NotApplicable(f"one run takes {seconds:.2g} s")
    return yardstick


def _measure_in_turn(context: CheckContext, own: Calls, beside: Calls, at_least: float) -> dict[str, float]:
    """Measure convolution (``own``) and yardsticks (``beside``) in turn for ``at_least`` seconds."""
    seconds: dict[str, list[float]] = {name: [] for name in (*own, *beside)}
    # The calls take turns, so that a change of the device's clock affects all of them.
    rounds, ends = 0, time.perf_counter() + at_least
    with context.under_setting():
        while rounds < _LEAST or time.perf_counter() < ends:
            # Report phases in every round, so that the time limit applies to one round and not to all rounds.
            for phase, calls in (("steady", own), ("yardstick", beside)):
                if calls:
                    context.report_phase(phase)
                for name, call in calls.items():
                    seconds[name] += _run_turn(context, call)
            rounds += 1
    return {key: value for name in seconds for key, value in _steady(name, seconds[name]).items()}


def _run_turn(context: CheckContext, call: Callable[[], object]) -> list[float]:
    """Repeat a call for some milliseconds, and return the seconds of the runs."""
    ends = time.perf_counter() + _TURN
    seconds = [_timed(context, call)]
    while time.perf_counter() < ends:
        seconds.append(_timed(context, call))
    # Drop the first run, because the previous call has left other data in the caches.
    return seconds[1:] or seconds


def start_up(context: CheckContext) -> CheckResult:
    """Time the first convolution in this process with search and compilation. Then time later calls."""
    import torch

    problem, operands = context.the_problem, operands_on_device(context)
    directions = DIRECTIONS if context.direction is None else (context.direction,)

    def call() -> None:
        for direction in directions:
            run(problem, direction, operands)

    # This call starts the runtime, so that its start does not count for the first convolution.
    context.first_call(lambda: torch.ones(8, device=context.device) * 2)
    with context.measured():
        _, seconds = context.first_call(call)
        with context.under_setting():
            repeated = _repeat(context, call, min(context.seconds, STEADY_SECONDS))
    return CheckResult(timings={"first_call": seconds, **_steady("steady", repeated)})


def _steady(name: str, seconds: list[float]) -> dict[str, float]:
    return {
        name: statistics.median(seconds),
        **deciles(name, seconds),
        f"{name}_repeats": len(seconds),
        f"{name}_mean": statistics.fmean(seconds),
    }


def _repeat(context: CheckContext, call: Callable[[], object], at_least: float) -> list[float]:
    seconds: list[float] = []
    ends = time.perf_counter() + at_least
    while len(seconds) < _LEAST or time.perf_counter() < ends:
        seconds.append(_timed(context, call))
    return seconds


def _timed(context: CheckContext, call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    context.backend.synchronize(context.device)
    return time.perf_counter() - started


CHECKS = (
    Check(
        name="throughput",
        rung="conv",
        question="How fast is convolution, forward and with backward?",
        function=throughput,
        # A matrix product is a yardstick of this check. If the product hangs, every problem would wait for
        # it.
        requires=Requires(("gemm",), convolution="every"),
        process="measuring",
        seconds=0.6,
    ),
    Check(
        name="start-up",
        rung="conv",
        question="How long does the first call take with empty and with filled caches?",
        function=start_up,
        requires=EVERY_DIRECTION,
        process="own",
        seconds=2.5,
    ),
)
