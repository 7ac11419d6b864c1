"""What convolution takes. The device belongs to the measurement alone meanwhile."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rocmprobe.model import DIRECTIONS
from rocmprobe.problems import Problem
from rocmprobe.worker.ask import Answer, Ask
from rocmprobe.worker.checks.operands import operands_on_device
from rocmprobe.worker.tensors import Tensors, run

#: Calls that follow the first one untimed: the bypass measures its algorithms in the third call of a problem.
_WARM_UP = 2
#: Timed runs of a call at least.
_LEAST = 5
#: Seconds of steady calls after a first one: there are several first ones, so each may be short.
STEADY_SECONDS = 0.2


def throughput(ask: Ask) -> Answer:
    """Median seconds with p10 and p90 of each direction alone and of forward with backward by autograd; of
    the one direction that is asked about, if one is. They take turns, after a warm-up."""
    operands = operands_on_device(ask)
    calls = _directions(ask.the_problem, operands)
    if ask.direction is not None:
        calls = {_key(ask.direction): calls[_key(ask.direction)]}
    return Answer(timings=_compared(ask, calls, ask.seconds))


def _key(direction: str) -> str:
    return direction.replace("-", "_")


def _directions(problem: Problem, operands: Tensors) -> dict[str, Callable[[], Any]]:
    """What is timed of ``problem``, by the key of its time."""
    import torch

    def forward_and_backward() -> None:
        leaves = [operands.input.detach().requires_grad_(), operands.weight.detach().requires_grad_()]
        held = Tensors(leaves[0], leaves[1], operands.bias, operands.grad)
        torch.autograd.grad(run(problem, "fwd", held)["output"], leaves, operands.grad)

    calls: dict[str, Callable[[], Any]] = {
        _key(direction): partial(run, problem, direction, operands) for direction in DIRECTIONS
    }
    return {**calls, "fwd_bwd": forward_and_backward}


def _compared(ask: Ask, calls: Mapping[str, Callable[[], Any]], at_least: float) -> dict[str, float]:
    """Seconds of each of ``calls``, which take turns for ``at_least`` seconds, so that a clock that drifts
    meets all alike."""
    for call in calls.values():
        ask.first_call(call)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    with ask.tested():
        for call in calls.values():
            for _ in range(_WARM_UP):
                call()
        ask.backend.synchronize(ask.device)
        ends = time.perf_counter() + at_least
        while len(next(iter(seconds.values()))) < _LEAST or time.perf_counter() < ends:
            for name, call in calls.items():
                seconds[name].append(_timed(ask, call))
    return {key: value for name in calls for key, value in _steady(name, seconds[name]).items()}


def start_up(ask: Ask) -> Answer:
    """Seconds of this process's first call of a problem (search, compilation, loading), and of those that
    follow: all directions one after the other, or the one that is asked about.

    Whether the process finds databases and caches empty or filled is the controller's to arrange.
    """
    import torch

    problem, operands = ask.the_problem, operands_on_device(ask)
    directions = DIRECTIONS if ask.direction is None else (ask.direction,)

    def call() -> None:
        for direction in directions:
            run(problem, direction, operands)

    # The runtime starts here, so that it is no part of the first convolution.
    ask.first_call(lambda: torch.ones(8, device=ask.device) * 2)
    _, seconds = ask.first_call(call)
    with ask.tested():
        repeated = _repeat(ask, call, min(ask.seconds, STEADY_SECONDS))
    return Answer(timings={"first_call": seconds, **_steady("steady", repeated)})


def _steady(name: str, seconds: list[float]) -> dict[str, float]:
    deciles = statistics.quantiles(seconds, n=10, method="inclusive")
    return {
        name: statistics.median(seconds), f"{name}_p10": deciles[0], f"{name}_p90": deciles[-1],
        f"{name}_repeats": len(seconds), f"{name}_mean": statistics.fmean(seconds),
    }  # fmt: skip


def _repeat(ask: Ask, call: Callable[[], Any], at_least: float) -> list[float]:
    """Seconds of each of a few runs or more, for ``at_least`` seconds in all."""
    seconds: list[float] = []
    ends = time.perf_counter() + at_least
    while len(seconds) < _LEAST or time.perf_counter() < ends:
        seconds.append(_timed(ask, call))
    return seconds


def _timed(ask: Ask, call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    ask.backend.synchronize(ask.device)
    return time.perf_counter() - started
