"""What a training step is to the recorder: told apart by its convolutions, the most frequent kind counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rocmprobe.exec.inject import steps as module  # noqa: E402
from rocmprobe.exec.inject.steps import Steps, after_each_step  # noqa: E402

FWD, DATA, WEIGHTS = range(3)


class Clock:
    """Stands for the module ``time``: seconds pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


@pytest.fixture
def steps(clock: Clock) -> Iterator[Steps]:
    """Told of every optimizer, as in a program that is recorded."""
    found = Steps()
    observers.append(found.stepped)
    yield found
    observers.clear()


observers: list[Callable[[Any], None]] = []
after_each_step(lambda optimizer: [each(optimizer) for each in observers])


def optimizer(kind: str = "SGD") -> Any:
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    return getattr(torch.optim, kind)([parameter], lr=0.1)


def convolve(steps: Steps, clock: Clock, seconds: float = 1.0, problem: int = 0) -> None:
    clock.now += seconds
    steps.convolved(problem, (FWD,), seconds)


def test_seconds_and_counts_of_a_step(steps: Steps, clock: Clock) -> None:
    chosen = optimizer()
    for number in range(5):
        convolve(steps, clock)
        clock.now += 10 * (number + 1)
        steps.convolved(0, (DATA, WEIGHTS), 10 * (number + 1))
        clock.now += 0.5
        chosen.step()
    assert steps.summary() == {
        "made": 5, "alike": 4, "threads": torch.get_num_threads(), "seconds": 36.5,
        "seconds_p10": 21.5, "seconds_p90": 51.5, "rest_seconds": 0.5,
        "computed": [[0, FWD, 1], [0, DATA, 1], [0, WEIGHTS, 1]],
    }  # fmt: skip


def test_the_first_step_has_no_beginning(steps: Steps, clock: Clock) -> None:
    assert steps.summary() is None
    convolve(steps, clock)
    chosen = optimizer()
    chosen.step()
    assert steps.summary() is None


def test_of_several_optimizers_the_first_one_counts(steps: Steps, clock: Clock) -> None:
    discriminator, generator = optimizer("Adam"), optimizer()
    for _ in range(3):
        convolve(steps, clock, problem=0)
        discriminator.step()
        for _ in range(2):
            convolve(steps, clock, problem=1)
            generator.step()
    found = steps.summary()
    assert found is not None
    assert (found["made"], found["alike"], found["seconds"]) == (3, 2, 3.0)
    assert found["computed"] == [[0, FWD, 1], [1, FWD, 2]]


def test_after_the_end_of_an_optimizer_the_next_one_counts(steps: Steps, clock: Clock) -> None:
    for _ in range(2):
        chosen = optimizer()
        for _ in range(3):
            convolve(steps, clock)
            chosen.step()
        del chosen
    found = steps.summary()
    assert found is not None
    assert (found["made"], found["alike"]) == (6, 4)


def test_gradients_that_are_accumulated_are_one_step(steps: Steps, clock: Clock) -> None:
    chosen = optimizer()
    for number in range(12):
        convolve(steps, clock)
        if number % 4 == 3:
            chosen.step()
    found = steps.summary()
    assert found is not None
    assert (found["made"], found["computed"]) == (3, [[0, FWD, 4]])


def test_an_evaluation_or_a_smaller_batch_is_another_kind_of_step(steps: Steps, clock: Clock) -> None:
    chosen = optimizer()
    for number in range(9):
        convolve(steps, clock, problem=int(number == 5))
        if number in (2, 7):
            convolve(steps, clock, 100.0, problem=2)
        chosen.step()
    found = steps.summary()
    assert found is not None
    assert (found["made"], found["alike"], found["seconds"]) == (9, 5, 1.0)
    assert found["computed"] == [[0, FWD, 1]]


def test_what_a_grad_scaler_skips_is_no_step(steps: Steps, clock: Clock) -> None:
    if not hasattr(torch.amp, "GradScaler"):
        pytest.skip("this torch scales gradients on GPUs alone")
    chosen, scaler = optimizer(), torch.amp.GradScaler("cpu", init_scale=2.0)
    parameter = chosen.param_groups[0]["params"][0]
    for number in range(6):
        chosen.zero_grad()
        convolve(steps, clock)
        scaler.scale((parameter * (float("inf") if number == 3 else 1.0)).sum()).backward()
        scaler.step(chosen)
        scaler.update()
    found = steps.summary()
    assert found is not None
    assert (found["made"], found["alike"], found["computed"]) == (5, 3, [[0, FWD, 1]])


def test_without_the_time_of_every_convolution_the_rest_is_not_known(steps: Steps, clock: Clock) -> None:
    chosen = optimizer()
    for number in range(4):
        convolve(steps, clock)
        steps.convolved(1, (FWD,), None if number == 2 else 0.0)
        chosen.step()
    found = steps.summary()
    assert found is not None
    assert found["rest_seconds"] is None
    assert found["seconds"] == 1.0
