"""The small networks: they train right on this CPU, and a faulty convolution shows in them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from asking import context, planted

from rocmprobe.bypass import dispatch
from rocmprobe.checks import CHECKS, MODELS, models
from rocmprobe.checks.networks import training
from rocmprobe.checks.networks.catalogue import NETWORKS, drawn
from rocmprobe.checks.tools.context import CheckResult


@pytest.fixture(autouse=True)
def _hardly_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_TIMED_SECONDS", 0.0)
    monkeypatch.setattr(models, "_FEWEST", 2)
    monkeypatch.setattr(models, "_WARM_UP", 0)


def asked(check: str, dtype: str = "float32", apply_setting: Any = nullcontext) -> CheckResult:
    return CHECKS[check].function(context(dtype=getattr(torch, dtype), apply_setting=apply_setting))


class Doubled(dispatch.Interceptor):
    """Every convolution doubles its first output channel."""

    def convolution(self, call: Any, proceed: Any) -> Any:
        output = proceed(call).clone()
        output[:, 0] *= 2
        return output


class Tapless(dispatch.Interceptor):
    """The convolutions with more than one tap drop the first one."""

    def convolution(self, call: Any, proceed: Any) -> Any:
        weight = call.weight.clone()
        if weight.shape[-1] > 1:
            weight[..., 0, 0] = 0
        return proceed(replace(call, weight=weight))


class Biasless(dispatch.Interceptor):
    """The gradient of every bias is zero."""

    def convolution_backward(self, call: Any, proceed: Any) -> Any:
        data, weight, bias = proceed(call)
        return data, weight, None if bias is None else torch.zeros_like(bias)


@pytest.mark.parametrize("check", MODELS)
def test_a_right_training_passes(check: str) -> None:
    answer = asked(check)
    assert answer.state == "pass", answer.message
    losses = answer.numerics["losses"]
    assert len(losses) == training.STEPS
    assert losses[-1] < losses[0]
    assert {"first_step", "step", "step_p10", "step_p90"} <= set(answer.timings)


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="torch before 2.3 scales no loss on a CPU")
def test_under_autocast_the_loss_is_scaled() -> None:
    answer = asked("train-detector", "bfloat16")
    assert answer.state == "pass", answer.message
    assert (answer.numerics["loss_scale"], answer.numerics["skipped_steps"]) == (256.0, 0)


@pytest.mark.parametrize(
    ("check", "fault", "dtype"),
    [
        ("train-detector", Tapless, "bfloat16"),
        ("train-unet", Biasless, "float32"),
        ("train-depthwise", Doubled, "float32"),
    ],
)
def test_a_faulty_convolution_shows(check: str, fault: type[dispatch.Interceptor], dtype: str) -> None:
    answer = asked(check, dtype, lambda: planted(fault()))
    assert answer.state == "wrong"
    assert "step" not in answer.timings


def test_a_faulty_lstm_shows() -> None:
    from torch.overrides import TorchFunctionMode

    class Doubling(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if getattr(func, "__name__", "") != "lstm":
                return result
            return (torch.cat((2 * result[0][..., :1], result[0][..., 1:]), -1), *result[1:])

    assert asked("train-lstm", apply_setting=Doubling).state == "wrong"


def test_a_loss_that_does_not_fall_is_told() -> None:
    flat = replace(training.reference("lstm"), losses=(1.0,) * training.STEPS)
    answer = models._compare_training(flat, flat, models.limits()["lstm"]["float32"])
    assert (answer.state, answer.message) == ("wrong", "the loss does not fall: 1 to 1")


def test_what_is_not_finite_is_no_small_deviation() -> None:
    right = training.reference("lstm")
    broken = replace(
        right,
        losses=(float("nan"), *right.losses[1:]),
        gradients={name: each * float("nan") for name, each in right.gradients.items()},
    )
    found = training.deviation(broken, right)
    assert (found.losses, found.gradients, found.updates) == (float("inf"), float("inf"), 0.0)


def test_weights_are_the_same_in_every_process() -> None:
    torch.manual_seed(1)
    first = drawn(NETWORKS["lstm"], 0).state_dict()
    torch.manual_seed(2)
    second = drawn(NETWORKS["lstm"], 0).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
