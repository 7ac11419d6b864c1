"""The check soak in this process: what one faulty step among many does to the result."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from asking import context, planted

from rocmprobe.bypass import dispatch
from rocmprobe.checks import CHECKS, soak
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.checks.tools.failures import DeviceFailure

#: The check reads this clock three times for each step, and each reading takes a second.
MINUTES = 1.5
#: Steps that find the size of the batch, and convolutions of a step.
BEFORE, CONVOLUTIONS = 3, 5


class At(dispatch.Interceptor):
    """The first convolution of one step, or of every step, has a fault."""

    name = "at"

    def __init__(self, fault: Callable[[torch.Tensor], Any], step: int = 0) -> None:
        self._fault, self._step, self._calls = fault, step, 0

    def convolution(self, call: Any, proceed: Any) -> Any:
        step, layer = divmod(self._calls, CONVOLUTIONS)
        self._calls += 1
        output = proceed(call)
        if layer == 0 and self._step in (0, step - BEFORE + 1):
            output = output.clone()
            self._fault(output)
        return output


def soaked(monkeypatch: pytest.MonkeyPatch, *faults: dispatch.Interceptor) -> CheckResult:
    monkeypatch.setattr(soak, "_MOST_COPIES", 1)
    seconds = count()
    asked = context(
        "conv2d-fp32-n1-c4-i8x8-k4-f3x3", below=lambda: planted(*faults),
        clock=lambda: float(next(seconds)), soak_seconds=60 * MINUTES,
    )  # fmt: skip
    return CHECKS["soak"].function(asked)


def test_a_device_that_computes_right_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = soaked(monkeypatch)
    assert found.state == "pass"
    assert found.message.endswith("are the same bit for bit")
    assert found.numerics["steps"] >= 20
    assert found.numerics["seconds"] >= 60 * MINUTES
    assert (found.numerics["mismatches"], found.numerics["bit_for_bit"]) == (0, True)


def flip(output: torch.Tensor) -> None:
    bits = output.view(torch.int32)
    bits[0, 0, 0, 0] ^= 1 << 8


@pytest.mark.parametrize(
    ("fault", "step", "state", "error"),
    [
        (flip, 3, "flaky", "the error is "),
        (flip, 17, "flaky", "the error is "),
        (lambda output: output.mul_(1.5), 17, "wrong", "the error is "),
        (lambda output: output[0, 0].fill_(float("nan")), 17, "wrong", "the error is infinite"),
    ],
)
def test_one_step_with_another_result_is_found(
    monkeypatch: pytest.MonkeyPatch, step: int, fault: Callable[[torch.Tensor], Any], state: str, error: str
) -> None:
    found = soaked(monkeypatch, At(fault, step))
    assert found.state == state
    assert found.numerics["mismatches"] == 1
    assert f"1 of {found.numerics['steps']} steps gave another result" in found.message
    assert f"the first was step {step}, after " in found.message
    assert error in found.message


def test_an_exception_says_after_how_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(output: torch.Tensor) -> None:
        raise RuntimeError("HIP error: unspecified launch failure\nfor debugging, pass a flag")

    with pytest.raises(DeviceFailure) as failure:
        soaked(monkeypatch, At(fails, 12))
    first, second = str(failure.value).splitlines()
    assert first.startswith("RuntimeError: HIP error: unspecified launch failure (after 11 steps in ")
    assert second == "for debugging, pass a flag"


def test_a_library_that_is_always_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    found = soaked(monkeypatch, At(lambda output: output.mul_(1.5)))
    assert found.state == "wrong"
    assert found.message.startswith("every step differs from fp64: the error is ")
    assert found.numerics["steps"] == 10


def test_a_library_whose_results_vary_is_compared_within_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = torch.Generator().manual_seed(0)

    def vary(output: torch.Tensor) -> None:
        output.mul_(1 + 1e-7 * torch.rand(output.shape, generator=drawn))

    found = soaked(monkeypatch, At(vary))
    assert (found.state, found.numerics["bit_for_bit"]) == ("pass", False)
    assert found.message.endswith("within rounding, because they are not reproducible")


def test_too_little_memory_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(output: torch.Tensor) -> None:
        raise RuntimeError("HIP out of memory. Tried to allocate 2.25 GiB")

    with pytest.raises(soak.NotApplicable, match="not even one copy of the images fits"):
        soaked(monkeypatch, At(fails))
