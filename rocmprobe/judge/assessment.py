"""Assessments of settings: which settings the outcomes of a run support, for each dtype and purpose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Any, Optional

from rocmprobe.checks import CHECKS, CONVOLUTIONAL_MODELS, CONVOLUTIONS, MODELS
from rocmprobe.judge.noise import time_of
from rocmprobe.knowledge.settings import drivers_of
from rocmprobe.model.results import (
    DIRECTIONS,
    NATIVE,
    SEVERITIES,
    Finding,
    Outcome,
    Results,
    Setting,
)  # fmt: skip

#: Checks that show whether a network trains. Without PyTorch only batch-norm runs.
TRAINING = ("training-step", "batch-norm")
#: Checks that count for every setting but run under few settings.
_UNDER_FEW_SETTINGS = ("problem-matrix", "gradients", "gradient-flow", *CONVOLUTIONAL_MODELS)
#: The setting with the user's own environment. Also the id of the finding that this environment fails while a
#: clean environment works.
AS_FOUND = "as-found"
MEASUREMENTS = ("throughput", "memory", "memory-sweep", "start-up")


@dataclass(frozen=True)
class Assessment:
    """The outcomes of one setting that count for a dtype and a purpose.

    ``against`` are the counted outcomes that failed. ``unproven`` are failures that the setting can share: it
    did not run these checks, and they failed under the setting that represents it. ``unproven`` also holds
    the convolutions that the setting does not apply to.
    """

    setting: Setting
    counted: tuple[Outcome, ...]
    against: tuple[Outcome, ...]
    unproven: tuple[Outcome, ...] = ()

    @property
    def right(self) -> bool:
        """Return True if convolution was tested, all counted tests passed, and nothing is unproven."""
        tested = any(outcome.check in CONVOLUTIONS for outcome in self.counted)
        return tested and not self.against and not self.unproven

    @property
    def stable(self) -> bool:
        """Return True unless a repeated convolution differed in its bits.

        A convolution that is correct once and wrong once is flaky, which is a failure.
        """
        return all(outcome.numerics.get("repeatable") is not False for outcome in self.counted)


def driver_of(results: Results) -> str:
    """Return the driver whose outcomes decide findings and recommendation.

    This is capi if only capi was tested. Otherwise it is torch, because users run torch.
    """
    drivers = {outcome.driver for outcome in results.outcomes}
    return "capi" if drivers == {"capi"} else "torch"


def of_driver(results: Results) -> Results:
    """Return the results with the outcomes of ``driver_of`` and of checks that only capi runs.

    Drop the settings that torch does not support.
    """
    driver = driver_of(results)
    only_capi = {name for name, check in CHECKS.items() if check.function is None}
    return replace(
        results,
        outcomes=tuple(
            outcome for outcome in results.outcomes if outcome.driver == driver or outcome.check in only_capi
        ),
        settings=tuple(setting for setting in results.settings if "torch" in drivers_of(setting)),
    )


def device_of(results: Results) -> Optional[str]:
    """Return the device that the recommendation is about, or None if nothing was tested.

    Take the first tested device in the order of the run's targets that is not an integrated GPU. If there is
    no such device, take the first tested device.
    """
    if len(results.options.get("targets") or ()) < 2:
        return results.outcomes[0].device if results.outcomes else None
    return next(iter(devices_of(results)), None)


def devices_of(results: Results) -> tuple[str, ...]:
    """Return every tested device, the device of the recommendation first."""
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

    For inference only forward convolutions count. For training these outcomes count:

    - convolutions in all directions, gradient flow and the autocast step, in ``dtype``
    - gradients by autograd and the training step, in every dtype
    - batch norm and the models with convolution, in ``dtype`` and in float32, because mixed precision also
      trains in float32
    - measurements in ``dtype`` that failed

    LSTM does not count, because it has its own finding. In a run without PyTorch, batch norm does not count
    either, because no other setting can be tried there. Outcomes that are not applicable do not count.

    The assessment has no outcomes if all outcomes of ``dtype`` are of batch norm or under autocast. It has no
    outcomes either if the purpose is training, and a partial run tested training, but not under ``setting``.
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
    """Return the failures that ``setting`` can share, and the convolutions to which ``setting`` does not
    apply.

    The failures are of checks that run under few settings and did not run under this setting. Failures of
    batch norm are left out if a training check passed under this setting.
    """
    tested = [outcome for outcome in results.outcomes if outcome.setting == setting.name]
    own = {outcome.check for outcome in tested}
    answering = _counted(results, representative(setting), dtype, purpose)
    shared = failed(each for each in answering if each.check in _UNDER_FEW_SETTINGS and each.check not in own)
    beside = batch_norm_setting(setting)
    trains = any(each.check in TRAINING and each.works for each in tested)
    if beside != setting.name and not trains:
        others = _counted(results, beside, dtype, purpose)
        shared += failed(each for each in others if each.check == "batch-norm")
    questions = {question(each) for each in answering if each.check in CONVOLUTIONS}
    return shared + tuple(
        outcome
        for outcome in results.outcomes
        if (outcome.setting, outcome.state) == (setting.name, "n/a") and question(outcome) in questions
    )


def question(outcome: Outcome) -> tuple[Optional[str], ...]:
    """Return the key of a case without its setting."""
    return outcome.device, outcome.driver, outcome.check, outcome.problem, outcome.direction, outcome.dtype


def representative(setting: Setting) -> str:
    """Return the setting whose outcomes stand in for ``setting`` in checks that run under few settings.

    ``default`` stands in for settings that use the vendor library. Others have a representative named like
    their verdict, such as ``bypass``.
    """
    return "default" if setting.verdict in NATIVE else setting.verdict


def batch_norm_setting(setting: Setting) -> str:
    """Return the setting whose tests of batch norm apply to ``setting``, because both compute it alike."""
    if setting.device == "cpu":
        return setting.name
    in_library = setting.vendor_library and "batch_norm" not in setting.pytorch_layers
    return "default" if in_library else "vendor-off"


def refuting(
    results: Results, options: Sequence[str], dtypes: Sequence[str] = ("float32",), bypass: bool = False
) -> tuple[Outcome, ...]:
    """Return the failures that speak against sending the layers of ``options`` to PyTorch's own kernels.

    These are failures of the layers in these kernels, and of such layers combined with native convolution. If
    ``bypass`` is True, the second kind are combinations with the bypass.
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
    """Return True if a partial run tested training under other settings but not under this setting."""
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
        # A measurement does not prove correct results, but a measurement that fails is a convolution that
        # failed.
        return outcome.dtype == dtype and outcome.fails
    return (
        outcome.check in ("training-step", "gradients")
        or (outcome.check in CONVOLUTIONAL_MODELS and outcome.dtype in ("float32", dtype))
        or (
            (outcome.check, outcome.driver) == ("batch-norm", "torch") and outcome.dtype in ("float32", dtype)
        )
        or (outcome.check in (*CONVOLUTIONS, "gradient-flow", "autocast-step") and outcome.dtype == dtype)
    )


def concerns_convolution(outcome: Outcome) -> bool:
    """Return False for a crash of the memory sweep and for memory above its prediction.

    The sweep fills the memory on purpose. Neither failure says anything about a process with enough memory.
    """
    return (outcome.check, outcome.state) not in (("memory-sweep", "crash"), ("memory", "wrong"))


def in_matrix(outcome: Outcome) -> bool:
    return outcome.check == "problem-matrix"


def convolutions(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Return the outcomes of single convolutions that run under all settings.

    Measurements are included. The problem matrix is not.
    """
    return tuple(
        outcome
        for outcome in outcomes
        if outcome.check in ("convolution", *MEASUREMENTS) and concerns_convolution(outcome)
    )


def owed_to_the_user(each: Assessment, found: Iterable[Assessment]) -> bool:
    """Return True if a setting is correct with the user's environment and no unchanged setting is correct
    without it.

    Such a setting depends on the user's databases. The setting does not help on another machine, nor on this
    machine once the databases are gone.
    """
    return (
        each.right
        and each.setting.inherit_environment
        and not any(
            other.right and other.setting.unchanged and not other.setting.inherit_environment
            for other in found
        )
    )


def sound(each: Assessment) -> bool:
    """Return True if a convolution was tested and all convolutions passed. Blocked convolutions do not
    pass."""
    asked = convolutions(each.counted)
    return bool(asked) and all(outcome.works for outcome in asked)


def broken(each: Assessment) -> tuple[Outcome, ...]:
    """Return the convolutions that ran and failed."""
    return failed(convolutions(each.against))


def native(results: Results, dtype: str) -> list[Assessment]:
    """Return assessments of the settings that use the vendor library and were tested with ``dtype``.

    Leave out ``by-layer``, whose convolutions repeat those of another setting.
    """
    own = [setting for setting in results.settings if setting.verdict in NATIVE and not setting.by_layer]
    found = [assess(results, setting, dtype, "training") for setting in own]
    return [each for each in found if convolutions(each.counted)]


def without_library(results: Results, dtype: str) -> list[Assessment]:
    """Return assessments of the settings that keep convolution on the device but out of the vendor
    library."""
    found = [assess(results, setting, dtype, "training") for setting in results.settings]
    return [each for each in found if each.setting.verdict in ("vendor-off", "bypass") and each.counted]


def dtypes(results: Results) -> tuple[str, ...]:
    """Return the dtypes whose convolutions ran under all settings, float32 first.

    Leave out dtypes that only a control setting tested.
    """
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
    """Return seconds by setting over the throughput problems of ``dtype`` that all timed settings share.

    If the run tests the convolutions of a program, return the sum of their times, each as often as the
    program computes it. Otherwise, return the geometric mean over the problems of the time of forward and
    backward together. For inference, use only forward times in both cases.

    If ``quantile`` is "", take the medians for the geometric mean, but the means for the sum. A sum of
    medians is not the median of the sum. "_p10" and "_p90" take the deciles. Leave out settings without
    timings. Return {} if the settings share no problem.
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
    """Return the outcomes that timed a problem, keyed by device, setting and problem as given to the run."""
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
    """Yield each outcome about a problem, with the problem as given to the run.

    A setting that changes the memory format tests packed and channels-last operands at once. If a program has
    both, yield the outcome for both problems.
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
    """Return the seconds to compute a problem as often as ``counts`` says for each direction.

    ``quantile`` "" takes medians. "_mean", "_p10" and "_p90" take these statistics. Return None if a counted
    direction was not timed.
    """
    total = 0.0
    for direction in directions:
        seconds = time_of(outcome.timings.get(direction.replace("-", "_") + quantile))
        if counts.get(direction) and seconds is None:
            return None
        total += counts.get(direction, 0) * (seconds or 0.0)
    return total


def _counts_by_problem(results: Results) -> dict[str, Mapping[str, int]]:
    """Return how often the run's program computes each problem. Return {} without a program or without
    counts."""
    counts = {row["problem"]: row["counts"] for row in _recorded(results)}
    return counts if any(sum(each.values()) for each in counts.values()) else {}


def _recorded(results: Results) -> Sequence[Mapping[str, Any]]:
    """Return the recorded problems of the run's program, from the run's options."""
    shapes = results.options.get("shapes")
    found: Sequence[Mapping[str, Any]] = shapes["problems"] if shapes else ()
    return found


def failed(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Return the outcomes that ran and failed.

    A blocked outcome only repeats another failure. An outcome interrupted by the user says nothing.
    """
    return tuple(outcome for outcome in outcomes if outcome.fails)


def quoted(outcomes: Iterable[Outcome], most: int = 3) -> tuple[str, ...]:
    """Return one line for each of the first outcomes: its id, its state and its first evidence."""
    return tuple(
        f"{outcome.id}: {outcome.state}" + (f", {outcome.evidence[0]}" if outcome.evidence else "")
        for outcome in list(outcomes)[:most]
    )


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings sorted from most to least severe. Equally severe findings keep their order."""
    return tuple(sorted(findings, key=lambda finding: -SEVERITIES.index(finding.severity)))
