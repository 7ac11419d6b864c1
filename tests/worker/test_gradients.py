"""Gradients in the ways of training: right on this CPU, and each planted fault is found where it is."""

from __future__ import annotations

from typing import Any

import pytest
from asking import context, planted

from rocmprobe.bypass import dispatch
from rocmprobe.checks import CHECKS
from rocmprobe.checks.gradients import METHODS
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.model.problems import KINDS, problems

FLOW = [problem.text for problem in problems("quick", "gradient-flow")]
PLAIN = "conv2d-fp32-n2-c8-i9x10-k12-f3x3-p1-bias"
FP64 = "conv2d-fp64-n2-c2-i4x4-k3-f3x3-p1-bias"


class Spoiled(dispatch.Interceptor):
    """A library whose gradients of input, weight and bias ``spoil`` changes."""

    name = "spoiled"

    def __init__(self, spoil: Any) -> None:
        self._spoil = spoil

    def convolution_backward(self, call: Any, proceed: Any) -> Any:
        return self._spoil(call, *proceed(call))


def zero_row_of_weight(call: Any, input: Any, weight: Any, bias: Any) -> Any:
    if weight is not None:
        weight[3] = 0
    return input, weight, bias


def scaled_bias(call: Any, input: Any, weight: Any, bias: Any) -> Any:
    return input, weight, bias if bias is None else bias * 1.01


def shifted_input(call: Any, input: Any, weight: Any, bias: Any) -> Any:
    return input if input is None else input.roll(1, -1), weight, bias


def wrong_of_channels_last(call: Any, input: Any, weight: Any, bias: Any) -> Any:
    if not call.input.is_contiguous() and weight is not None:
        weight = weight.flip(2)
    return input, weight, bias


def wrong_of_expanded(call: Any, input: Any, weight: Any, bias: Any) -> Any:
    """As a kernel that reads its gradient as if it were dense."""
    if 0 in call.grad_output.stride() and input is not None:
        input = input * 0
    return input, weight, bias


def wrong_without_input(call: Any, input: Any, weight: Any, bias: Any) -> Any:
    return input, weight if input is not None else weight * 0, bias


class OneBuffer:
    """Every gradient of the weight in the same memory: the second overwrites what the first left there."""

    def __init__(self) -> None:
        self._kept: Any = None

    def __call__(self, call: Any, input: Any, weight: Any, bias: Any) -> Any:
        if weight is not None:
            self._kept = weight if self._kept is None else self._kept.copy_(weight)
        return input, self._kept, bias


class EverySecondLost:
    """The part of the second backward never arrives."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, call: Any, input: Any, weight: Any, bias: Any) -> Any:
        self._count += 1
        return (input, weight, bias) if self._count % 2 else (input, weight * 0, bias)


def flow(problem: str, setting: str = "default", spoil: Any = None) -> CheckResult:
    layers = [Spoiled(spoil)] if spoil else []
    return CHECKS["gradient-flow"].function(context(problem, setting, below=lambda: planted(*layers)))


@pytest.mark.parametrize("setting", ["default", "vendor-off", "bypass"])
@pytest.mark.parametrize("problem", FLOW)
def test_every_way_is_right_on_this_cpu(problem: str, setting: str) -> None:
    try:
        answer = flow(problem, setting)
    except NotApplicable as reason:
        pytest.skip(str(reason))
    assert (answer.state, answer.message) == ("pass", "")
    assert 0 < answer.numerics["max_error"] < answer.numerics["max_error_limit"]


@pytest.mark.parametrize(
    ("spoil", "ways", "operand"),
    [
        (zero_row_of_weight, set(METHODS) - {"weight frozen"}, "weight"),
        (scaled_bias, set(METHODS), "bias"),
        (shifted_input, set(METHODS), "input"),
        (wrong_of_channels_last, {"input channels-last", "model channels-last"}, "weight"),
        (wrong_of_expanded, {"of a sum"}, "input"),
        (wrong_without_input, {"input without gradient"}, "weight"),
        (OneBuffer(), {"accumulated", "graph retained", "weight shared"}, "weight"),
        (EverySecondLost(), set(METHODS), "weight"),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__) if callable(value) else "",
)
def test_a_planted_fault_is_found_and_named(spoil: Any, ways: set[str], operand: str) -> None:
    answer = flow(PLAIN, spoil=spoil)
    assert answer.state == "wrong"
    way, _, named = str(answer.numerics["of"]).partition(": gradient of ")
    assert way in ways
    assert named == operand
    assert answer.message.startswith(f"{way}: gradient of {operand}: error ")


def test_the_bypass_does_not_meet_what_lies_below_it() -> None:
    assert flow(PLAIN, "bypass", scaled_bias).state == "pass"


def test_a_gradient_that_never_arrives_counts_as_zero() -> None:
    answer = flow(PLAIN, spoil=lambda call, input, weight, bias: (input, None, bias))
    assert (answer.state, answer.numerics["max_error"]) == ("wrong", 1.0)
    assert str(answer.numerics["of"]).endswith("gradient of weight")


@pytest.mark.parametrize("spoil", [scaled_bias, zero_row_of_weight, shifted_input])
def test_finite_differences_notice_a_fault_in_each_operand(spoil: Any) -> None:
    assert CHECKS["gradients"].function(context(FP64)).state == "pass"
    if spoil is zero_row_of_weight:
        spoil = lambda call, input, weight, bias: (input, weight * 1.01, bias)  # noqa: E731
    answer = CHECKS["gradients"].function(context(FP64, below=lambda: planted(Spoiled(spoil))))
    assert answer.state == "wrong"
    assert answer.message.startswith("gradcheck: ")


@pytest.mark.parametrize("purpose", ["gradients", "gradient-flow"])
def test_every_kind_is_asked_with_a_bias(purpose: str) -> None:
    asked = problems("long", purpose)
    assert {problem.kind for problem in asked} == set(KINDS)
    assert all(problem.bias for problem in asked)
    assert any(problem.groups > 1 for problem in asked)
