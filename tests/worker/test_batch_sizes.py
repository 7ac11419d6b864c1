"""Training throughput over batch sizes, in this process on the CPU."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from rows import every_row

from rocmprobe.backends import BACKENDS
from rocmprobe.checks import batch_sizes
from rocmprobe.checks.batch_sizes import curve
from rocmprobe.checks.networks import training
from rocmprobe.checks.tools.context import CheckContext


class Clock:
    """Time that passes only while a batch is measured; ``fits`` is the largest batch that has room."""

    def __init__(self, seconds: float, each: float, fits: int = 1 << 20) -> None:
        self.left, self.each, self.fits = seconds, each, fits

    def seconds_of(self, batch: int) -> Any:
        self.left -= self.each * batch
        return None if batch > self.fits else self.each * batch / 10

    def time_left(self) -> float:
        return self.left


#: Clock, most, the batches, the one that was refused, and what ended it.
ENDS = (
    (Clock(1e9, 1.0), 16, [1, 2, 4, 8, 16], None, "batch"),
    (Clock(1e9, 1.0, fits=5), 16, [1, 2, 4], 8, "memory"),
    (Clock(1e9, 1.0, fits=0), 16, [], 1, "memory"),
    # 1 + 2 + 4 seconds are gone, and 8 more would not fit into the rest.
    (Clock(12.0, 1.0), 1 << 14, [1, 2, 4], None, "time"),
    (Clock(0.0, 1.0), 16, [1], None, "time"),
)


@every_row(("clock", "most", "batches", "refused", "ended"), ENDS)
def test_where_the_curve_ends(clock, most, batches, refused, ended):
    found = curve(clock.seconds_of, most, clock.time_left)
    assert (found.batches, found.refused, found.ended_by) == (batches, refused, ended)
    assert found.per_second == [10.0] * len(batches)


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> CheckContext:
    monkeypatch.setattr(batch_sizes, "_MOST_ON_CPU", 4)
    monkeypatch.setattr(batch_sizes, "_STEADY", 0.0)
    monkeypatch.setattr(batch_sizes, "_FEWEST_STEPS", 1)
    monkeypatch.setattr(batch_sizes, "_WARM_UP", 0)
    return CheckContext(
        torch.float32, "cpu", BACKENDS["onednn"], None, None, nullcontext, lambda phase: None, 100.0,
        exact=True, bypass=False,
    )  # fmt: skip


def test_a_real_network_is_trained_with_each_batch(context):
    answer = batch_sizes.batch_sizes(context)
    assert answer.state == "pass"
    assert answer.numerics["batches"] == [1, 2, 4]
    assert all(rate > 0 for rate in answer.numerics["samples_per_second"])
    assert answer.memory == {"largest_batch": 4, "ended_by": "batch"}


def test_out_of_memory_is_an_answer_and_any_other_error_is_none(context, monkeypatch):
    step = training.Trainer.step

    def failing(message: str) -> Any:
        def fail(trainer: Any) -> None:
            if len(trainer._inputs) > 2:
                raise RuntimeError(message)
            step(trainer)

        return fail

    monkeypatch.setattr(training.Trainer, "step", failing("HIP out of memory. Tried to allocate 2.00 GiB"))
    answer = batch_sizes.batch_sizes(context)
    assert (answer.state, answer.numerics["batches"]) == ("pass", [1, 2])
    assert answer.memory == {"largest_batch": 2, "ended_by": "memory", "refused_batch": 4}
    monkeypatch.setattr(training.Trainer, "step", failing("miopenStatusUnknownError"))
    with pytest.raises(batch_sizes.DeviceFailure):
        batch_sizes.batch_sizes(context)
