"""Estimate of the user's training time: the time of a step multiplied by the number of steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from rocmprobe.checks import MODELS
from rocmprobe.judge.noise import time_of
from rocmprobe.judge.normal_speed import has_own_times
from rocmprobe.judge.recommendation.step_time import shapes_of
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import Estimate, Outcome, Results, TrainingTime
from rocmprobe.model.shapes import Recorded
from rocmprobe.model.workload import Workload, parse_workload

_SLOWDOWN = (
    "Slowdowns in long runs, such as when the card gets hot. The range shows only how single steps vary "
    "(p10 to p90)."
)
_LEFT_OUT = (
    "Networks and images that differ in size from the timed ones: use the most similar network, and expect "
    "the time to grow with the number of pixels.",
    "Loading and augmenting the data, validation, checkpoints, and the first step, which may compile.",
    _SLOWDOWN,
)
_OWN_LEFT_OUT = (
    "Validation and checkpoints between the epochs, and the first step, which may compile.",
    "Changes to data loading or the optimizer: time outside convolution is taken from the recording.",
    _SLOWDOWN,
)
_SIMULATED = "The GPU: these are times of the CPU that simulates it."
_SIMULATED_TIMES = "The GPU: these are simulated times."


@dataclass(frozen=True)
class TimedStep:
    """Seconds of one training step (forward, backward, optimizer) on ``batch`` samples of shape ``input``.

    ``own`` is True for the user's own network.
    """

    name: str
    device: str
    setting: str
    dtype: str
    input: str
    batch: int
    low: float
    median: float
    high: float
    own: bool = False


def estimate(results: Results) -> Optional[Estimate]:
    """Return the training time for every timed network and setting, or None without ``--estimate``."""
    text = str(results.options.get("estimate") or "")
    if not text:
        return None
    workload = parse_workload(text)
    own = tuple(own_steps(results))
    networks = tuple(model_steps(results.outcomes))
    times = tuple(training_time(each, workload) for each in (*own, *networks))
    whose = _SIMULATED_TIMES if has_own_times(results) else _SIMULATED
    simulated = (whose,) if results.simulated else ()
    return Estimate(
        workload.images, workload.epochs, workload.batch, times,
        (*simulated, *_LEFT_OUT) if networks or not own else (), (*simulated, *_OWN_LEFT_OUT) if own else (),
    )  # fmt: skip


def training_time(step: TimedStep, workload: Workload) -> TrainingTime:
    """Return the training time of ``workload``. A smaller last batch takes as long as a whole one."""
    steps = -(-workload.images // step.batch)
    epoch, low, high = steps * step.median, steps * step.low, steps * step.high
    epochs = workload.epochs
    return TrainingTime(
        step.name, step.device, step.setting, step.dtype, step.input, step.batch,
        step.median, step.low, step.high, epoch, low, high, epochs * epoch, epochs * low, epochs * high,
        step.own,
    )  # fmt: skip


def own_steps(results: Results) -> Iterator[TimedStep]:
    """Yield the timed steps of the user's program (``--shapes``), if its samples per step are known."""
    shapes = shapes_of(results)
    recorded = shapes.problems if shapes else ()
    computed = [each for each in recorded if any(each.step_counts.values())]
    batch = _samples(computed)
    if batch is None:
        return
    dtype = " and ".join(sorted({parse_problem(each.problem).dtype for each in computed}))
    for each in results.step_times:
        low, mean, high = each.seconds_p10, each.seconds, each.seconds_p90
        if each.per == "step" and low and mean and high:
            yield TimedStep(
                "your model", each.device, each.setting, dtype, "as recorded", batch,
                min(low, mean), mean, max(mean, high), own=True,
            )  # fmt: skip


def _samples(computed: Sequence[Recorded]) -> Optional[int]:
    """Return the samples per training step, or None if the batch sizes differ."""
    batches = {parse_problem(each.problem).batch for each in computed}
    # With gradient accumulation, a step has several batches, and every count is a multiple of their number.
    # So use the greatest common divisor of the counts as the number of batches.
    counts = (count for each in computed for count in each.step_counts.values())
    return batches.pop() * math.gcd(*counts) if len(batches) == 1 else None


def model_steps(outcomes: Iterable[Outcome]) -> Iterator[TimedStep]:
    """Yield the timed steps of the small networks that trained correctly."""
    for outcome in outcomes:
        if outcome.check not in MODELS or not outcome.works:
            continue
        times = [time_of(outcome.timings.get(key)) for key in ("step_p10", "step", "step_p90")]
        batch: Any = outcome.numerics.get("batch")
        low, median, high = times
        if low and median and high and isinstance(batch, int) and batch > 0:
            yield TimedStep(
                outcome.check[len("train-") :], outcome.device, outcome.setting, outcome.dtype,
                str(outcome.numerics.get("input", "")), batch, low, median, high,
            )  # fmt: skip
