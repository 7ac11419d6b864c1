"""Results of the small networks, and the estimated time of the user's own training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from rocmprobe.checks import MODELS
from rocmprobe.judge.normal_speed import has_own_times
from rocmprobe.model.results import Estimate, Outcome, Results, TrainingTime
from rocmprobe.report import text
from rocmprobe.report.page.layout import Table, with_device

#: Column names for the errors that have a limit, by their key in ``numerics``.
_ERRORS = {"losses": "losses", "gradients": "last gradients", "ways": "weights"}
_RATES = {"images_per_second": "images/s", "sequences_per_second": "sequences/s"}


@dataclass(frozen=True)
class Models:
    """Tables of the networks: ``trained`` has the results, ``times`` the estimated training times."""

    caption: str
    trained: Table
    question: str = ""
    answer: str = ""
    times: Optional[Table] = None
    left_out: tuple[str, ...] = ()
    own_left_out: tuple[str, ...] = ()


def models(results: Results) -> Optional[Models]:
    """Return each network's outcome under each setting, or None if no network ran and no estimate exists."""
    mine = [outcome for outcome in results.outcomes if outcome.check in MODELS]
    if not mine and not results.estimate:
        return None
    caption = (
        "Each network was trained for some steps on fixed data and compared with the same training in "
        "float64 on the CPU; dtypes other than float32 use autocast. Errors are shown with their limits."
    )
    if results.simulated:
        if has_own_times(results):
            caption += " Speeds are simulated."
        else:
            caption += " Speeds were measured on the CPU that simulates the GPU."
    header = ("network", "setting", "dtype", "state", "loss", *_ERRORS.values(), "step", "speed")
    trained = Table(header, tuple(_row(outcome, mine) for outcome in mine))
    asked = results.estimate
    if asked is None:
        return Models(caption, trained)
    return Models(
        caption, trained, f"Time of {_training(asked)}", line(results), _times(asked.times),
        asked.left_out, asked.own_left_out,
    )  # fmt: skip


def _row(outcome: Outcome, all_of_them: Sequence[Outcome]) -> tuple[str, ...]:
    numerics = outcome.numerics
    devices = {each.device for each in all_of_them}
    setting = with_device(outcome.setting, outcome.device, devices)
    rate = next((f"{text.show(numerics[key])} {unit}" for key, unit in _RATES.items() if key in numerics), "")
    return (
        outcome.check[len("train-") :], setting, outcome.dtype,
        f"{outcome.meaning.symbol} {outcome.state}", _fell(numerics),
        *(_against(numerics, name) for name in _ERRORS), _spread(outcome.timings, "step"), rate,
    )  # fmt: skip


def _fell(numerics: Any) -> str:
    losses = numerics.get("losses")
    known = [text.numeric(loss) for loss in losses] if isinstance(losses, (list, tuple)) else []
    return " → ".join(text.show(known[place]) for place in (0, -1)) if known else ""


def _against(numerics: Any, name: str) -> str:
    error = numerics.get(f"{name}_error")
    limit = numerics.get(f"{name}_error_limit")
    return "" if error is None else f"{text.show(error)} of {text.show(limit)}"


def _spread(timings: Any, name: str) -> str:
    median, low, high = (text.numeric(timings.get(f"{name}{end}")) for end in ("", "_p10", "_p90"))
    return "" if median is None else text.spread(median, low, high)


def _training(asked: Estimate) -> str:
    own = [each.batch for each in asked.times if each.own]
    batch = own[0] if own else asked.batch
    batches = f" in batches of {batch}" if batch else ""
    return f"{text.count(asked.epochs, 'epoch')} of {text.count(asked.images, 'image')}{batches}"


def _times(times: Sequence[TrainingTime]) -> Table:
    header = ("network", "setting", "dtype", "sample", "batch", "step", "epoch", "whole training")
    rows = tuple(
        (
            f"{each.name} (yours)" if each.own else each.name, each.setting, each.dtype, each.input,
            str(each.batch), text.spread(each.step, each.step_low, each.step_high),
            text.spread(each.epoch, each.epoch_low, each.epoch_high),
            text.spread(each.training, each.training_low, each.training_high),
        )
        for each in sorted(times, key=lambda each: not each.own)
    )  # fmt: skip
    return Table(header, rows)


def line(results: Results) -> str:
    """Return the estimate of training time in one line, or "" if no estimate was requested.

    If the user's own network was timed, the line is only about this network.
    """
    asked = results.estimate
    if asked is None:
        return ""
    if not asked.times:
        return f"{_training(asked)}: no network trained correctly, so none was timed."
    counting = [each for each in asked.times if each.own] or list(asked.times)
    recommended = results.recommended
    setting = recommended if any(each.setting == recommended for each in counting) else counting[0].setting
    counting = [each for each in counting if each.setting == setting]
    dtype = "float32" if any(each.dtype == "float32" for each in counting) else counting[0].dtype
    times = ", ".join(
        f"{each.name} {text.spread(each.training, each.training_low, each.training_high)}"
        for each in counting
        if each.dtype == dtype
    )
    whose = "your network" if counting[0].own else "a network like ours"
    return f"{_training(asked)} with {whose}, setting “{setting}”, {dtype}: {times}."
