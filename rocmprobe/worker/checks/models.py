"""Small real networks, trained for some steps and held against the same training in fp64; and what a step
takes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from rocmprobe.text.tables import table
from rocmprobe.worker.ask import Answer, Ask, DeviceFailure, NotApplicable, out_of_memory
from rocmprobe.worker.precision import autocast, plain

if TYPE_CHECKING:
    from rocmprobe.worker.models.training import Trained, Trainer

#: Steps before the timed ones, until allocators and caches are as they stay.
_WARM_UP = 3
#: Seconds of timed steps at least, and the fewest steps, as long as these take no more than the last.
_TIMED_SECONDS, _FEWEST, _MOST_SECONDS = 0.5, 8, 10.0
_DIGITS = 6


def _trains(name: str, ask: Ask) -> Answer:
    """In float32 as it is, in another dtype in fp32 under autocast to it, its loss scaled."""
    from rocmprobe.worker.models import training
    from rocmprobe.worker.models.catalogue import NETWORKS

    def trainer(batch: int) -> Trainer:
        fp32 = ask.dtype_name == "float32"
        precision = plain(ask.dtype) if fp32 else autocast(ask.backend.device_type, ask.dtype)
        return training.Trainer(name, ask.device, precision, batch, training.SEED)

    expected = training.reference(name)
    checked = ask.placed(lambda: trainer(training.BATCH))
    try:
        _, first = ask.first_call(checked.step)
    except DeviceFailure as failure:
        raise _unless_missing(failure, ask) from failure.__cause__
    ask.steady_call(lambda: [checked.step() for _ in range(training.STEPS - 1)])
    answer = _held(checked.trained(), expected, limits()[name][ask.dtype_name])
    answer.timings["first_step"] = first
    if answer.state != "pass":
        return answer
    batch = ask.batch or training.BATCH
    try:
        timed = ask.placed(lambda: trainer(batch))
        seconds = _step_seconds(ask, timed)
    except DeviceFailure as failure:
        if not out_of_memory(failure.__cause__):
            raise
        # It trains right all the same.
        answer.message = f"not timed: a batch of {batch} does not fit into memory"
        return answer
    answer.timings.update(seconds)
    network = NETWORKS[name]
    rate = float(f"{batch / seconds['step']:.{_DIGITS}g}")
    answer.numerics.update(batch=batch, input=network.input, **{f"{network.sample}s_per_second": rate})
    return answer


@lru_cache(maxsize=1)
def limits() -> dict[str, dict[str, dict[str, float]]]:
    """By network and dtype the largest deviation of ``losses``, ``gradients`` and ``ways``."""
    found: dict[str, dict[str, dict[str, float]]] = table("model_limits")
    return found


def _unless_missing(failure: DeviceFailure, ask: Ask) -> Exception:
    """oneDNN has no LSTM in float16 for every CPU; PyTorch gives it one under autocast all the same."""
    text = str(failure.__cause__)
    if ask.backend.device_type == "cpu" and "primitive descriptor for the LSTM" in text:
        return NotApplicable(f"oneDNN has no such kernel on this CPU: {text.partition('.')[0]}")
    return failure


def _held(result: Trained, expected: Trained, limit: Mapping[str, float]) -> Answer:
    """The answer that the deviation of ``result`` from ``expected`` makes, whatever was timed."""
    from rocmprobe.worker.models.training import deviation

    found = deviation(result, expected)
    answer = Answer(
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
        ("ways", found.ways, f"the way of {found.ways_of}"),
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


def _step_seconds(ask: Ask, trainer: Trainer) -> dict[str, float]:
    """Median of a step's seconds with p10 and p90, after a warm-up. Steps that take seconds each are few."""
    warm = [ask.first_call(trainer.step)[1]]
    seconds: list[float] = []
    with ask.alone():
        warm.append(ask.steady_call(trainer.step)[1])
        warm += [ask.steady_call(trainer.step)[1] for _ in range(_WARM_UP - 2) if sum(warm) < _MOST_SECONDS]
        while sum(seconds) < _TIMED_SECONDS or (len(seconds) < _FEWEST and sum(seconds) < _MOST_SECONDS):
            seconds.append(ask.steady_call(trainer.step)[1])
    # Quantiles are of two at least.
    seconds = seconds if len(seconds) > 1 else [*seconds, warm[-1]]
    deciles = statistics.quantiles(seconds, n=10, method="inclusive")
    return {
        "step": statistics.median(seconds), "step_p10": deciles[0], "step_p90": deciles[-1],
        "step_repeats": len(seconds),
    }  # fmt: skip


def train_resnet(ask: Ask) -> Answer:
    return _trains("resnet", ask)


def train_detector(ask: Ask) -> Answer:
    return _trains("detector", ask)


def train_unet(ask: Ask) -> Answer:
    return _trains("unet", ask)


def train_lstm(ask: Ask) -> Answer:
    return _trains("lstm", ask)


def train_depthwise(ask: Ask) -> Answer:
    return _trains("depthwise", ask)
