"""Checks that train small networks, compare the training to fp64, and time the steps."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from rocmprobe.checks.check import Check, FailureText, Requires
from rocmprobe.checks.networks.precision import autocast, plain
from rocmprobe.checks.tools.context import CheckContext, CheckResult, deciles
from rocmprobe.checks.tools.failures import DeviceFailure, NotApplicable, out_of_memory
from rocmprobe.text.tables import table

if TYPE_CHECKING:
    from rocmprobe.checks.networks.training import Trained, Trainer

#: Number of steps before the timed steps. Afterwards, allocators and caches are stable.
_WARM_UP = 3
#: (minimum seconds of all timed steps, minimum number of timed steps, seconds after which fewer steps
#: suffice).
_TIMED_SECONDS, _FEWEST, _MOST_SECONDS = 0.5, 8, 10.0
_DIGITS = 6


def _trains(name: str, context: CheckContext) -> CheckResult:
    """Train a network, compare the training to fp64, then time the steps.

    If the dtype is not float32, the network trains in fp32 under autocast to the dtype.
    """
    from rocmprobe.checks.networks import training

    def trainer() -> Trainer:
        fp32 = context.dtype_name == "float32"
        precision = plain(context.dtype) if fp32 else autocast(context.backend.device_type, context.dtype)
        return training.Trainer(name, context.device, precision)

    expected = training.reference(name)
    checked = context.placed(trainer)
    try:
        first = context.first_call(checked.step)[1]
    except DeviceFailure as failure:
        raise _explain_failure(failure, context) from failure.__cause__
    context.steady_call(lambda: checked.run(training.STEPS - 1))
    answer = _compare_training(checked.trained(), expected, limits()[name][context.dtype_name])
    answer.timings["first_step"] = first
    if answer.state != "pass":
        return answer
    try:
        timed = context.placed(trainer)
        seconds = _step_seconds(context, timed)
    except DeviceFailure as failure:
        if not out_of_memory(failure.__cause__):
            raise
        # The state stays "pass", because the training was correct. Only the timed batch does not fit.
        answer.message = f"not timed: a batch of {training.BATCH} does not fit into memory"
        return answer
    answer.timings.update(seconds)
    return answer


@lru_cache(maxsize=1)
def limits() -> dict[str, dict[str, dict[str, float]]]:
    """Return the limits for ``training.Deviation``, keyed by network, dtype and field."""
    found: dict[str, dict[str, dict[str, float]]] = table("model_limits")
    return found


def _explain_failure(failure: DeviceFailure, context: CheckContext) -> Exception:
    """Return NotApplicable if oneDNN reports that it has no LSTM kernel, else ``failure``."""
    # On some CPUs oneDNN has no LSTM in float16, but PyTorch still calls oneDNN under autocast.
    text = str(failure.__cause__)
    if context.backend.device_type == "cpu" and "primitive descriptor for the LSTM" in text:
        return NotApplicable(f"oneDNN lacks this LSTM kernel on this CPU: {text.partition('.')[0]}")
    return failure


def _compare_training(result: Trained, expected: Trained, limit: Mapping[str, float]) -> CheckResult:
    from rocmprobe.checks.networks.training import deviation

    found = deviation(result, expected)
    answer = CheckResult(
        numerics={
            "losses": [float(f"{loss:.{_DIGITS}g}") for loss in result.losses],
            "skipped_steps": result.skipped,
        }
    )
    if result.scale is not None:
        answer.numerics["loss_scale"] = result.scale
    errors: tuple[tuple[str, float, str], ...] = (
        ("losses", found.losses, "the loss curve"),
        ("gradients", found.gradients, f"the last gradient of {found.gradients_of}"),
        ("ways", found.updates, f"the change of {found.updates_of}"),
    )
    for name, error, where in errors:
        answer.numerics.update(
            {f"{name}_error": error, f"{name}_error_limit": limit[name], f"{name}_of": where}
        )
        if not error <= limit[name] and not answer.message:
            answer.state = "wrong"
            answer.message = f"{where} deviates by {error:.2g} from fp64, the limit is {limit[name]:.2g}"
    if not result.losses[-1] < result.losses[0]:
        answer.state = "wrong"
        answer.message = f"the loss does not fall: {result.losses[0]:.4g} to {result.losses[-1]:.4g}"
    return answer


def _step_seconds(context: CheckContext, trainer: Trainer) -> dict[str, float]:
    warm = [context.first_call(trainer.step)[1]]
    seconds: list[float] = []
    with context.measured():
        warm.append(context.steady_call(trainer.step)[1])
        warm += [
            context.steady_call(trainer.step)[1] for _ in range(_WARM_UP - 2) if sum(warm) < _MOST_SECONDS
        ]
        while sum(seconds) < _TIMED_SECONDS or (len(seconds) < _FEWEST and sum(seconds) < _MOST_SECONDS):
            seconds.append(context.steady_call(trainer.step)[1])
    # Quantiles need at least two values.
    seconds = seconds if len(seconds) > 1 else [*seconds, warm[-1]]
    return {"step": statistics.median(seconds), **deciles("step", seconds), "step_repeats": len(seconds)}


def train_resnet(context: CheckContext) -> CheckResult:
    return _trains("resnet", context)


def train_detector(context: CheckContext) -> CheckResult:
    return _trains("detector", context)


def train_unet(context: CheckContext) -> CheckResult:
    return _trains("unet", context)


def train_lstm(context: CheckContext) -> CheckResult:
    return _trains("lstm", context)


def train_depthwise(context: CheckContext) -> CheckResult:
    return _trains("depthwise", context)


_network = partial(
    Check,
    rung="train",
    process="measuring",
    seconds=1.5,
    requires=Requires(float32=("training-step",), autocast=("autocast-step",)),
)
_explained = partial(
    FailureText,
    rung="primitives",
    general=False,
    needed=False,
    advice="Train under a setting or in a dtype with which this network passed.",
)
CHECKS = (
    _network(
        "train-resnet",
        question="Does a ResNet train correctly, and how fast?",
        function=train_resnet,
        explanation=_explained("Training of a ResNet"),
    ),
    _network(
        "train-detector",
        question="Does a detector train correctly, and how fast?",
        function=train_detector,
        explanation=_explained("Training of a network like YOLO"),
    ),
    _network(
        "train-unet",
        question="Does a U-Net train correctly, and how fast?",
        function=train_unet,
        explanation=_explained("Training of a U-Net"),
    ),
    _network(
        "train-lstm",
        question="Does an LSTM train correctly, and how fast?",
        function=train_lstm,
        requires=Requires(("gemm",), beside=("lstm",), float32=("train-lstm",)),
        explanation=_explained("Training of an LSTM"),
    ),
    _network(
        "train-depthwise",
        question="Does a depthwise network train correctly, and how fast?",
        function=train_depthwise,
        explanation=_explained("Training of a network like MobileNet"),
    ),
)
