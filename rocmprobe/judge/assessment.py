"""Assessments of settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any, Optional

from rocmprobe.checks import CHECKS, CONVOLUTIONAL_MODELS, CONVOLUTIONS, MODELS
from rocmprobe.judge.noise import time_of
from rocmprobe.model.results import (
    DIRECTIONS,
    NATIVE,
    SEVERITIES,
    Finding,
    Outcome,
    Results,
    Setting,
)  # fmt: skip
from rocmprobe.model.results_file import from_json
from rocmprobe.model.shapes import Shapes

#: Checks that show whether a network trains.
TRAINING = ("training-step", "batch-norm")
_UNDER_FEW_SETTINGS = ("problem-matrix", "gradients", "gradient-flow", *CONVOLUTIONAL_MODELS)
#: Name of the setting with the user's own environment. A finding has the same id: its tests fail in the
#: user's environment and pass in a clean one.
AS_FOUND = "as-found"
MEASUREMENTS = ("throughput", "memory", "start-up")


@dataclass(frozen=True)
class Assessment:
    """The outcomes that decide whether a setting works for a dtype and a purpose (training or inference).

    ``counted`` are these outcomes, and ``against`` are the failures among them. ``unproven`` has failures
    under other settings that run the same code as ``setting``, and convolutions to which ``setting`` does not
    apply.
    """

    setting: Setting
    counted: tuple[Outcome, ...]
    against: tuple[Outcome, ...]
    unproven: tuple[Outcome, ...] = ()

    @property
    def right(self) -> bool:
        """True if convolution was tested, and ``against`` and ``unproven`` are empty."""
        tested = any(outcome.check in CONVOLUTIONS for outcome in self.counted)
        return tested and not self.against and not self.unproven

    @property
    def stable(self) -> bool:
        """False if a repeated convolution gave different bits, else True."""
        return all(outcome.numerics.get("repeatable") is not False for outcome in self.counted)


def device_of(results: Results) -> Optional[str]:
    """Return the device that the recommendation is about, or None if nothing was tested."""
    if len(results.options.get("targets") or ()) < 2:
        return results.outcomes[0].device if results.outcomes else None
    return next(iter(devices_of(results)), None)


def devices_of(results: Results) -> tuple[str, ...]:
    """Return the tested devices, integrated GPUs last. The recommendation is about the first device."""
    tested = dict.fromkeys(outcome.device for outcome in results.outcomes)
    if len(tested) < 2:
        return tuple(tested)
    targets = {str(each.get("device")): each for each in results.options.get("targets") or ()}
    ordered = [*(device for device in targets if device in tested), *tested]
    return tuple(dict.fromkeys(sorted(ordered, key=lambda device: bool(_in_processor(targets.get(device))))))


def _in_processor(target: Optional[Mapping[str, Any]]) -> Any:
    return target and target.get("in_processor")


def assess(results: Results, setting: Setting, dtype: str, purpose: str) -> Assessment:
    """Return the assessment of ``setting`` for convolutions of ``dtype``.

    For inference, only forward convolutions count. For training, these outcomes count:

    - convolutions in all directions, gradient flow and the autocast step, in ``dtype``
    - gradients by autograd and the training step, in every dtype
    - batch norm and the models with convolution, in ``dtype`` and in float32
    - failed measurements in ``dtype``

    Batch norm and checks under autocast are not enough: ``counted`` is empty if no other test ran in
    ``dtype``. An incomplete run can have training checks under other settings but none under ``setting``. In
    this case, ``counted`` is empty for training.
    """
    counted = _counted(results, setting.name, dtype, purpose)
    asked_of_dtype = any(
        outcome.dtype == dtype and not _under_autocast(outcome) and outcome.check != "batch-norm"
        for outcome in counted
    )
    if not asked_of_dtype or (purpose == "training" and _left_out(results, counted)):
        counted = ()
    against = tuple(outcome for outcome in counted if not outcome.works)
    return Assessment(setting, counted, against, _unproven(results, setting, dtype, purpose))


def _counted(results: Results, setting: str, dtype: str, purpose: str) -> tuple[Outcome, ...]:
    device = device_of(results)
    return tuple(
        outcome
        for outcome in results.outcomes
        if (outcome.device, outcome.setting) == (device, setting)
        and outcome.meaning.counted
        and _counts(outcome, dtype, purpose)
    )


def _unproven(results: Results, setting: Setting, dtype: str, purpose: str) -> tuple[Outcome, ...]:
    tested = [outcome for outcome in results.outcomes if outcome.setting == setting.name]
    own = {outcome.check for outcome in tested}
    answering = _counted(results, representative(setting), dtype, purpose)
    shared = failed(each for each in answering if each.check in _UNDER_FEW_SETTINGS and each.check not in own)
    beside = batch_norm_setting(setting)
    trains = any(each.check in TRAINING and each.works for each in tested)
    if beside != setting.name and not trains:
        others = _counted(results, beside, dtype, purpose)
        shared += failed(each for each in others if each.check == "batch-norm")
    questions = {case_key(each) for each in answering if each.check in CONVOLUTIONS}
    return shared + tuple(
        outcome
        for outcome in results.outcomes
        if (outcome.setting, outcome.state) == (setting.name, "n/a") and case_key(outcome) in questions
    )


def case_key(outcome: Outcome) -> tuple[Optional[str], ...]:
    """Return a key that is the same for outcomes of the same case under different settings."""
    return outcome.device, outcome.check, outcome.problem, outcome.direction, outcome.dtype


def representative(setting: Setting) -> str:
    """Return the name of the setting whose outcomes are used if a check did not run under ``setting``."""
    return "default" if setting.verdict in NATIVE else setting.verdict


def batch_norm_setting(setting: Setting) -> str:
    """Return the name of the setting whose batch norm outcomes are also valid for ``setting``."""
    if setting.device == "cpu":
        return setting.name
    in_library = setting.vendor_library and "batch_norm" not in setting.pytorch_layers
    return "default" if in_library else "vendor-off"


def failures_against_pytorch_layers(
    results: Results, options: Sequence[str], dtypes: Sequence[str] = ("float32",), bypass: bool = False
) -> tuple[Outcome, ...]:
    """Return the failures that rule out PyTorch's own kernels for the layers ``options``.

    Also return failures of convolution: those in the bypass if ``bypass`` is True, else those in the vendor
    library.
    """
    combining = {
        each.name
        for each in results.settings
        if (each.bypass and not each.vendor_library if bypass else set(options) & set(each.pytorch_layers))
    }

    def refutes(outcome: Outcome) -> bool:
        check = CHECKS.get(outcome.check)
        option = check.layer.option if check and check.layer else None
        if outcome.setting in combining:
            return option is None or option in options
        if outcome.setting == "vendor-off":
            return option in options
        return not bypass and (outcome.setting, outcome.check) == ("default", "convolution")

    return failed(
        each
        for each in results.outcomes
        if each.dtype in dtypes and refutes(each) and concerns_convolution(each)
    )


def _under_autocast(outcome: Outcome) -> bool:
    return outcome.check == "autocast-step" or (outcome.check in MODELS and outcome.dtype != "float32")


def _left_out(results: Results, counted: Iterable[Outcome]) -> bool:
    return (
        results.partial
        and any(outcome.check in TRAINING for outcome in results.outcomes)
        and not any(outcome.check in TRAINING for outcome in counted)
    )


def _counts(outcome: Outcome, dtype: str, purpose: str) -> bool:
    if purpose == "inference":
        return outcome.check in CONVOLUTIONS and (outcome.dtype, outcome.direction) == (dtype, "fwd")
    if not concerns_convolution(outcome):
        return False
    if outcome.check in MEASUREMENTS:
        # A successful measurement does not prove correct results, but a failed measurement is a failed
        # convolution.
        return outcome.dtype == dtype and outcome.fails
    return (
        outcome.check in ("training-step", "gradients")
        # Mixed precision also trains in float32.
        or (outcome.check in CONVOLUTIONAL_MODELS and outcome.dtype in ("float32", dtype))
        or (outcome.check == "batch-norm" and outcome.dtype in ("float32", dtype))
        or (outcome.check in (*CONVOLUTIONS, "gradient-flow", "autocast-step") and outcome.dtype == dtype)
    )


def concerns_convolution(outcome: Outcome) -> bool:
    """Return False for memory use above the prediction, else True."""
    return (outcome.check, outcome.state) != ("memory", "wrong")


def in_matrix(outcome: Outcome) -> bool:
    return outcome.check == "problem-matrix"


def convolutions(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Return the outcomes of the check "convolution" and of the measurements of convolution.

    Leave out failures that only concern memory.
    """
    return tuple(
        outcome
        for outcome in outcomes
        if outcome.check in ("convolution", *MEASUREMENTS) and concerns_convolution(outcome)
    )


def owed_to_the_user(each: Assessment, found: Iterable[Assessment]) -> bool:
    """Return True if ``each`` is correct only because of the user's own environment and databases.

    Return False if a setting in ``found`` is correct with a clean environment and unchanged PyTorch.
    """
    return (
        each.right
        and each.setting.inherit_environment
        and not any(
            other.right and other.setting.unchanged and not other.setting.inherit_environment
            for other in found
        )
    )


def convolutions_pass(each: Assessment) -> bool:
    """Return True if at least one convolution was tested and all of them passed."""
    asked = convolutions(each.counted)
    return bool(asked) and all(outcome.works for outcome in asked)


def failed_convolutions(each: Assessment) -> tuple[Outcome, ...]:
    """Return the convolutions that failed in the assessment ``each``."""
    return failed(convolutions(each.against))


def vendor_library_assessments(results: Results, dtype: str) -> list[Assessment]:
    """Return the training assessments of the settings that run convolution in the vendor library.

    Leave out settings without tested convolutions in ``dtype``, and the setting ``by-layer``.
    """
    own = [setting for setting in results.settings if setting.verdict in NATIVE and not setting.by_layer]
    found = [assess(results, setting, dtype, "training") for setting in own]
    return [each for each in found if convolutions(each.counted)]


def without_library(results: Results, dtype: str) -> list[Assessment]:
    """Return the training assessments of the settings with the verdict "vendor-off" or "bypass"."""
    found = [assess(results, setting, dtype, "training") for setting in results.settings]
    return [each for each in found if each.setting.verdict in ("vendor-off", "bypass") and each.counted]


def dtypes(results: Results) -> tuple[str, ...]:
    """Return the dtypes of the tested convolutions, float32 first. Ignore settings with a fixed dtype."""
    controls = {setting.name for setting in results.settings if setting.dtype}
    seen = {
        outcome.dtype
        for outcome in results.outcomes
        if outcome.check == "convolution" and outcome.setting not in controls
    }
    return tuple(sorted(seen, key=lambda name: (name != "float32", name)))


def times(
    results: Results, names: Iterable[str], dtype: str, purpose: str, quantile: str = ""
) -> dict[str, float]:
    """Return each setting's time in seconds for the throughput problems in ``dtype``.

    The time is the geometric mean over the problems, forward plus backward. If the run tests a program
    (``--shapes``), the time is the sum over the program's convolutions. For inference, only forward times are
    used. Settings without times are left out. Problems are used only if they were timed under all remaining
    settings.

    ``quantile`` is "_p10", "_p90" or "". With "", the times are medians, or means for a program.
    """
    directions = DIRECTIONS[:1] if purpose == "inference" else DIRECTIONS
    key = ("fwd" if purpose == "inference" else "fwd_bwd") + quantile
    wanted, device = set(names), device_of(results)
    counts = _counts_by_problem(results)
    timed: dict[str, dict[str, float]] = {}
    for (on, setting, problem), outcome in timed_problems(results).items():
        if (on, outcome.dtype) != (device, dtype) or setting not in wanted:
            continue
        seconds = (
            computed_seconds(outcome, counts.get(problem, {}), directions, quantile or "_mean")
            if counts
            else time_of(outcome.timings.get(key))
        )
        if seconds:
            timed.setdefault(setting, {})[problem] = seconds
    common = set.intersection(*(set(by_problem) for by_problem in timed.values())) if timed else set()
    if not common:
        return {}
    together = sum if counts else geometric_mean
    return {name: together([rows[text] for text in common]) for name, rows in timed.items()}


def timed_problems(results: Results) -> dict[tuple[str, str, str], Outcome]:
    """Return the outcomes of successful timings, keyed by (device, setting, problem)."""
    timed = (
        outcome
        for outcome in results.outcomes
        if outcome.check == "throughput" and outcome.problem and outcome.works
    )
    return {
        (outcome.device, outcome.setting, problem): outcome
        for problem, outcome in by_given_problem(results, timed)
    }


def by_given_problem(results: Results, outcomes: Iterable[Outcome]) -> Iterator[tuple[str, Outcome]]:
    """Yield (problem, outcome) for each outcome about a problem.

    An outcome under a channels-last setting is valid for two problems: with and without "-nhwc". Yield the
    outcome once for each of these problems that ``--shapes`` lists or that a setting without channels-last
    tested, or else once for the problem without "-nhwc".
    """
    channels_last = {setting.name for setting in results.settings if setting.channels_last}
    asked = {(each.check, each.problem) for each in results.outcomes if each.setting not in channels_last}
    recorded = {row["problem"] for row in _recorded(results)}
    for outcome in outcomes:
        problem = outcome.problem
        if problem is None:
            continue
        if outcome.setting not in channels_last:
            yield problem, outcome
            continue
        packed = problem.removesuffix("-nhwc")
        forms = [form for form in (packed, problem) if form in recorded or (outcome.check, form) in asked]
        for form in forms or [packed]:
            yield form, outcome


def computed_seconds(
    outcome: Outcome, counts: Mapping[str, int], directions: Iterable[str], quantile: str = ""
) -> Optional[float]:
    """Return the total seconds for ``counts[direction]`` computations in each direction.

    Return None if a needed time is missing. ``quantile`` is "" for the median, "_mean", "_p10" or "_p90".
    """
    total = 0.0
    for direction in directions:
        seconds = time_of(outcome.timings.get(direction.replace("-", "_") + quantile))
        if counts.get(direction) and seconds is None:
            return None
        total += counts.get(direction, 0) * (seconds or 0.0)
    return total


def _counts_by_problem(results: Results) -> dict[str, Mapping[str, int]]:
    counts = {row["problem"]: row["counts"] for row in _recorded(results)}
    return counts if any(sum(each.values()) for each in counts.values()) else {}


def shapes_of(results: Results) -> Optional[Shapes]:
    """Return the recorded shapes of the program, or None if ``--shapes`` was not given.

    Raise BadInput if the shapes are invalid.
    """
    shapes = results.options.get("shapes")
    return from_json(Shapes, shapes) if shapes else None


def _recorded(results: Results) -> Sequence[Mapping[str, Any]]:
    shapes = results.options.get("shapes")
    found: Sequence[Mapping[str, Any]] = shapes["problems"] if shapes else ()
    return found


def failed(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Return the outcomes that ran and failed."""
    return tuple(outcome for outcome in outcomes if outcome.fails)


def quoted(outcomes: Iterable[Outcome], most: int = 3) -> tuple[str, ...]:
    """Return a line with id, state and first evidence for each of the first ``most`` outcomes."""
    return tuple(
        f"{outcome.id}: {outcome.state}" + (f", {outcome.evidence[0]}" if outcome.evidence else "")
        for outcome in list(outcomes)[:most]
    )


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings sorted from most to least severe."""
    return tuple(sorted(findings, key=lambda finding: -SEVERITIES.index(finding.severity)))
