"""What convolution takes. The device belongs to the measurement alone meanwhile."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from rocmprobe.model import DIRECTIONS
from rocmprobe.worker.ask import Answer, Ask
from rocmprobe.worker.checks.operands import operands_on_device
from rocmprobe.worker.tensors import Tensors, run

#: Calls that follow the first one untimed: the bypass measures its algorithms in the third call of a problem.
_WARM_UP = 2
#: Seconds of steady calls after a first one: there are several first ones, so each may be short.
STEADY_SECONDS = 0.2


def throughput(ask: Ask) -> Answer:
    """Median seconds with p10 and p90, forward alone and forward with backward, after a warm-up."""
    import torch

    problem, operands = ask.the_problem, operands_on_device(ask)

    def forward() -> None:
        with torch.no_grad():
            run(problem, "fwd", operands)

    def forward_and_backward() -> None:
        leaves = [operands.input.detach().requires_grad_(), operands.weight.detach().requires_grad_()]
        held = Tensors(leaves[0], leaves[1], operands.bias, operands.grad)
        torch.autograd.grad(run(problem, "fwd", held)["output"], leaves, operands.grad)

    answer = Answer()
    for name, call in (("fwd", forward), ("fwd_bwd", forward_and_backward)):
        ask.first_call(call)
        with ask.tested():
            for _ in range(_WARM_UP):
                call()
            seconds = _repeat(ask, call, ask.seconds)
        answer.timings.update(_steady(name, seconds))
    return answer


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
        f"{name}_repeats": len(seconds),
    }  # fmt: skip


def _repeat(ask: Ask, call: Callable[[], None], at_least: float) -> list[float]:
    """Seconds of each of at least 5 runs, for ``at_least`` seconds in all."""
    seconds: list[float] = []
    ends = time.perf_counter() + at_least
    while len(seconds) < 5 or time.perf_counter() < ends:
        started = time.perf_counter()
        call()
        ask.backend.synchronize(ask.device)
        seconds.append(time.perf_counter() - started)
    return seconds
