"""Time of a training step of the user's program under each setting.

The time is the sum of the convolutions in a step, plus the recorded time of the rest of the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from rocmprobe.judge.assessment import computed_seconds, timed_problems
from rocmprobe.model.results import DIRECTIONS, Outcome, Results, Setting, StepTime
from rocmprobe.model.results_file import from_json
from rocmprobe.model.shapes import Shapes, Steps

#: Number of times that a problem is computed, keyed by problem and direction.
Counts = Mapping[str, Mapping[str, int]]


def shapes_of(results: Results) -> Optional[Shapes]:
    """Return the recorded shapes of the program, or None if ``--shapes`` was not given.

    Raise BadInput if the shapes are invalid.
    """
    shapes = results.options.get("shapes")
    return from_json(Shapes, shapes) if shapes else None


def counted(results: Results, shapes: Shapes) -> Counts:
    """Return how often a training step computes each direction of each problem.

    Count the whole program instead if no step was recorded, or if the run is for inference.
    """
    if results.purpose == "inference":
        return {each.problem: {"fwd": each.counts.get("fwd", 0)} for each in shapes.problems}
    return {each.problem: each.step_counts if shapes.steps else each.counts for each in shapes.problems}


def step_times(results: Results) -> tuple[StepTime, ...]:
    """Return the time of a training step for each device and setting that was timed.

    Return the time of all convolutions instead if no step was recorded, or if the run is for inference.
    """
    shapes = shapes_of(results)
    if shapes is None:
        return ()
    inference = results.purpose == "inference"
    steps = None if inference else shapes.steps
    counts = counted(results, shapes)
    missing_reason = "the run is for inference" if inference else "no training step was recorded"
    timed: dict[tuple[str, str], dict[str, Outcome]] = {}
    for (device, setting, problem), outcome in timed_problems(results).items():
        timed.setdefault((device, setting), {})[problem] = outcome
    settings = {setting.name: setting for setting in results.settings}
    return tuple(
        _step_time(device, settings[name], counts, outcomes, steps, missing_reason)
        for (device, name), outcomes in timed.items()
        if name in settings
    )


def _step_time(
    device: str, setting: Setting, counts: Counts, timed: Mapping[str, Outcome], steps: Optional[Steps],
    missing_reason: str,
) -> StepTime:  # fmt: skip
    """Return the time for one setting. ``missing_reason`` says why ``steps`` is None."""
    # Use means. Medians would hide the few convolutions that take far longer on a busy machine.
    middle, low, high = (_convolving(counts, timed, quantile) for quantile in ("_mean", "_p10", "_p90"))
    missing = [problem for problem in counts if _seconds(problem, counts, timed, "_mean") is None]
    convolutions = {problem: sum(its.values()) for problem, its in counts.items()}
    reason = missing_reason if steps is None else _unknown_rest(setting.device or device, steps)
    if missing:
        others = f" and {len(missing) - 1} more problem(s)" if len(missing) > 1 else ""
        reason = f"{missing[0]}{others} could not be timed"
    rest = steps.rest_seconds if steps and not reason else None

    def with_rest(convolving: Optional[float]) -> Optional[float]:
        return None if rest is None or convolving is None else rest + convolving

    return StepTime(
        device, setting.name, "step" if steps else "program", sum(convolutions.values()),
        sum(convolutions.values()) - sum(convolutions[problem] for problem in missing),
        with_rest(middle), with_rest(low), with_rest(high), middle, low, high, reason,
    )  # fmt: skip


def _convolving(counts: Counts, timed: Mapping[str, Outcome], quantile: str) -> Optional[float]:
    seconds = [_seconds(problem, counts, timed, quantile) for problem in counts]
    known = [each for each in seconds if each is not None]
    return sum(known) if len(known) == len(seconds) else None


def _seconds(problem: str, counts: Counts, timed: Mapping[str, Outcome], quantile: str) -> Optional[float]:
    if not any(counts[problem].values()):
        return 0.0
    if problem not in timed:
        return None
    return computed_seconds(timed[problem], counts[problem], DIRECTIONS, quantile)


def _unknown_rest(device: str, steps: Steps) -> str:
    here = device.partition(":")[0]
    if steps.device is None:
        return "the recorded training steps compute no convolution"
    if steps.device != here:
        where = "several devices" if steps.device == "several" else steps.device
        return (
            f"steps were recorded on {where}, but this run uses {here}: time outside convolution is unknown"
        )
    if steps.rest_seconds is not None:
        return ""
    if here == "cpu":
        return (
            "the program convolves in several threads at once: a step's time outside convolution is unknown"
        )
    return "on a GPU, the convolutions of a step cannot be timed while the program runs"
