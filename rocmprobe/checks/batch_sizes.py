"""Check of training throughput at batch sizes 1, 2, 4, and so on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from rocmprobe.checks.check import Check, Requires
from rocmprobe.checks.networks.precision import autocast, plain
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import DeviceFailure, out_of_memory

if TYPE_CHECKING:
    from rocmprobe.checks.networks.training import Trainer

#: The trained network, the same as in ``train-resnet``.
NETWORK = "resnet"
#: Maximum batch. Larger batches of such small images are not faster, and a test must not fill a machine's
#: main memory.
_MOST, _MOST_ON_CPU = 1 << 13, 1 << 8
#: Time limits for all batches together, in multiples of the time for one throughput measurement. The first
#: limit excludes the time of first calls, the second limit includes it.
_SECONDS, _SECONDS_IN_ALL = 4, 30
_WARM_UP, _FEWEST_STEPS, _STEADY = 2, 5, 0.1


@dataclass
class Curve:
    """Training throughput in samples per second at each batch size.

    ``refused`` is the first batch size that did not fit into memory, if any. ``ended_by`` is the reason for
    the end: "memory", "time", or "batch" (maximum batch size).
    """

    batches: list[int] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)
    refused: Optional[int] = None
    ended_by: str = "batch"


def curve(seconds_of: Callable[[int], Optional[float]], most: int, time_left: Callable[[], float]) -> Curve:
    """Measure the throughput at batch sizes 1, 2, 4, ... up to ``most`` while time is left.

    ``seconds_of`` returns the seconds of a training step, or None if the batch does not fit into memory.
    """
    found, batch = Curve(), 1
    started = time_left()
    while batch <= most:
        # The next batch is twice as large, so its measurement takes about twice as long as the previous one.
        if found.batches and 2 * (started - time_left()) > time_left():
            found.ended_by = "time"
            break
        started = time_left()
        seconds = seconds_of(batch)
        if seconds is None:
            found.refused, found.ended_by = batch, "memory"
            break
        found.batches.append(batch)
        found.per_second.append(float(f"{batch / seconds:.6g}"))
        batch *= 2
    return found


def batch_sizes(context: CheckContext) -> CheckResult:
    """Measure the training throughput of a small ResNet with larger and larger batches.

    Running out of memory is an error only at batch size 1.
    """
    on_cpu = context.backend.device_type == "cpu" or context.device == "cpu"
    limit = _limit(context, on_cpu)
    # The first call also starts the runtime and imports modules, which must not count for the first batch.
    context.first_call(_trainer(context, 1).step)
    clock = _TimeLimit(context.seconds)
    with context.measured():
        found = curve(
            lambda batch: _seconds(context, batch, limit, clock),
            _MOST_ON_CPU if on_cpu else _MOST,
            clock.left,
        )
    if not found.batches:
        return CheckResult("error", "a batch of 1 does not fit into memory", "out-of-memory")
    memory: dict[str, Any] = {"largest_batch": found.batches[-1], "ended_by": found.ended_by}
    if found.refused is not None:
        memory["refused_batch"] = found.refused
    numerics = {"batches": found.batches, "samples_per_second": found.per_second}
    return CheckResult(numerics=numerics, memory=memory)


class _TimeLimit:
    def __init__(self, seconds: float) -> None:
        now = time.perf_counter()
        self._ends, self._latest = now + _SECONDS * seconds, now + _SECONDS_IN_ALL * seconds

    def extend(self, seconds: float) -> None:
        self._ends += seconds

    def left(self) -> float:
        return min(self._ends, self._latest) - time.perf_counter()


def _limit(context: CheckContext, on_cpu: bool) -> Callable[[], AbstractContextManager[None]]:
    """Return a function that creates a context with a memory limit on a GPU, or without a limit on a CPU."""
    if on_cpu:
        return nullcontext
    # Leave memory for a desktop on the same GPU.
    fillable = context.backend.fillable_bytes(context.device, 0)
    return context.backend.memory_limit(context.device, fillable)


def _seconds(
    context: CheckContext, batch: int, limit: Callable[[], AbstractContextManager[None]], clock: _TimeLimit
) -> Optional[float]:
    try:
        with limit():
            return statistics.median(_steps(context, batch, clock))
    except DeviceFailure as failure:
        if not out_of_memory(failure.__cause__):
            raise
        return None


def _trainer(context: CheckContext, batch: int) -> Trainer:
    from rocmprobe.checks.networks import training

    fp32 = context.dtype_name == "float32"
    precision = plain(context.dtype) if fp32 else autocast(context.backend.device_type, context.dtype)
    found: Trainer = context.placed(
        lambda: training.Trainer(NETWORK, context.device, precision, batch, training.SEED)
    )
    return found


def _steps(context: CheckContext, batch: int, clock: _TimeLimit) -> Iterator[float]:
    """Yield the seconds of each step after the warm-up."""
    trainer = _trainer(context, batch)
    # For the vendor library every batch size is a new problem, for which the library can search for kernels
    # and compile them.
    _, seconds = context.first_call(trainer.step)
    clock.extend(seconds)
    for _ in range(_WARM_UP):
        context.steady_call(trainer.step)
    steps, total = 0, 0.0
    while steps < _FEWEST_STEPS or total < _STEADY:
        _, seconds = context.steady_call(trainer.step)
        yield seconds
        steps, total = steps + 1, total + seconds


CHECKS = (
    Check(
        "batch-sizes", "train", "How fast is training at each batch size, and which batch is too large?",
        batch_sizes, Requires(float32=("train-resnet",), autocast=("train-resnet",)), exclusive=True,
        own_process=True, verified=False, seconds=8.0,
    ),
)  # fmt: skip
