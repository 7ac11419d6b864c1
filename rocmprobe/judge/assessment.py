"""Which settings the outcomes of a run support, for which dtype and purpose."""

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

#: Checks that show whether a network trains: without PyTorch there is only the second.
TRAINING = ("training-step", "batch-norm")
#: Checks that count for a setting and run under few.
_UNDER_FEW_SETTINGS = ("problem-matrix", "gradients", "gradient-flow", *CONVOLUTIONAL_MODELS)
#: The setting with the user's own environment, and the finding that it fails while a clean one works.
AS_FOUND = "as-found"
MEASUREMENTS = ("throughput", "memory", "memory-sweep", "start-up")


@dataclass(frozen=True)
class Assessment:
    """How one setting did: the outcomes that count, of these the ones that speak against it, and what leaves
    it unproven: what failed in the problem matrix under the setting that represents it there, and was not
    tested under its own, and convolutions that it does not apply to."""

    setting: Setting
    counted: tuple[Outcome, ...]
    against: tuple[Outcome, ...]
    unproven: tuple[Outcome, ...] = ()

    @property
    def right(self) -> bool:
        """Return True if convolution was tested, all tests passed, and no failure elsewhere was left out."""
        tested = any(outcome.check in CONVOLUTIONS for outcome in self.counted)
        return tested and not self.against and not self.unproven

    @property
    def stable(self) -> bool:
        """No convolution came out different, to the bit, when it was run again. What is right now and wrong
        then is flaky, which is a failure."""
        return all(outcome.numerics.get("repeatable") is not False for outcome in self.counted)


def driver_of(results: Results) -> str:
    """The driver that findings and recommendation rest on: torch where it was tested, since it is what
    people use."""
    drivers = {outcome.driver for outcome in results.outcomes}
    return "capi" if drivers == {"capi"} else "torch"


def of_driver(results: Results) -> Results:
    """The results with the outcomes of that driver, of checks that only capi runs, and with the settings that
    it can have."""
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
    """The device that the recommendation is about: of those tested the first in the order of the run's
    targets that does not sit in the processor, else the first."""
    if len(results.options.get("targets") or ()) < 2:
        return results.outcomes[0].device if results.outcomes else None
    return next(iter(devices_of(results)), None)


def devices_of(results: Results) -> tuple[str, ...]:
    """Every device that was tested, the one that the recommendation is about first."""
    tested = dict.fromkeys(outcome.device for outcome in results.outcomes)
    if len(tested) < 2:
        return tuple(tested)
    targets = {str(each.get("device")): each for each in results.options.get("targets") or ()}
    ordered = [*(device for device in targets if device in tested), *tested]
    return tuple(dict.fromkeys(sorted(ordered, key=lambda device: bool(_in_processor(targets.get(device))))))


def _in_processor(target: Optional[Mapping[str, Any]]) -> Any:
    return target and target.get("in_processor")


def assess(results: Results, setting: Setting, dtype: str, purpose: str) -> Assessment:
    """What speaks for and against ``setting`` for convolutions of ``dtype`` and ``purpose``.

    Inference covers the forward direction alone. Training covers all directions and the gradients that
    autograd makes of them, the step and the models under autocast to ``dtype``, and whatever the dtype, the
    training step, batch norm and the models in float32: mixed precision trains in float32 too. Of the models
    those with convolution count; an LSTM is reported on its own, as its layer is, and so is batch norm
    without PyTorch, where nothing else can be tried for it. What is not applicable does not count, and
    nothing does where no outcome is of ``dtype`` but of batch norm or under autocast.
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
    """The failures that ``setting`` may share, of checks that run under few settings and not under
    it, and the convolutions that it does not apply to. A training step of its own tests batch norm."""
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
    """The case without its setting."""
    return outcome.device, outcome.driver, outcome.check, outcome.problem, outcome.direction, outcome.dtype


def representative(setting: Setting) -> str:
    """The setting whose outcomes count for ``setting`` where few were tested: ``default`` for those that
    use the vendor library, ``bypass`` for those with it."""
    return "default" if setting.verdict in NATIVE else setting.verdict


def batch_norm_setting(setting: Setting) -> str:
    """Return the setting that is tested with batch norm and computes it as ``setting`` does."""
    if setting.device == "cpu":
        return setting.name
    in_library = setting.vendor_library and "batch_norm" not in setting.pytorch_layers
    return "default" if in_library else "vendor-off"


def refuting(
    results: Results, options: Sequence[str], dtypes: Sequence[str] = ("float32",), bypass: bool = False
) -> tuple[Outcome, ...]:
    """Return the failures of the layers of ``options`` by PyTorch's own kernels, and of such layers combined
    with native convolution, or with the ``bypass``."""
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
    """Whether a run that was cut off tested whether other settings train, and not this one."""
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
        # A measurement is no proof of right numbers, but one that breaks is a convolution that broke.
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
    """False for what says nothing of a process that has memory left: one that died when a search had taken
    it to the last, and a prediction of memory that was exceeded."""
    return (outcome.check, outcome.state) not in (("memory-sweep", "crash"), ("memory", "wrong"))


def in_matrix(outcome: Outcome) -> bool:
    return outcome.check == "problem-matrix"


def convolutions(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Those that ran a convolution alone and ran under all settings alike, measurements included: not
    those of the problem matrix."""
    return tuple(
        outcome
        for outcome in outcomes
        if outcome.check in ("convolution", *MEASUREMENTS) and concerns_convolution(outcome)
    )


def owed_to_the_user(each: Assessment, found: Iterable[Assessment]) -> bool:
    """Whether a setting is right with the user's own environment and databases, and nothing unchanged is
    right without them: it is no answer for another machine, nor for this one once they are gone."""
    return (
        each.right
        and each.setting.inherit_environment
        and not any(
            other.right and other.setting.unchanged and not other.setting.inherit_environment
            for other in found
        )
    )


def sound(each: Assessment) -> bool:
    """Every convolution tested came out right; one that was blocked proves nothing."""
    asked = convolutions(each.counted)
    return bool(asked) and all(outcome.works for outcome in asked)


def broken(each: Assessment) -> tuple[Outcome, ...]:
    """The convolutions that ran and failed."""
    return failed(convolutions(each.against))


def native(results: Results, dtype: str) -> list[Assessment]:
    """How the settings did that go through the vendor library; those tested with ``dtype``. ``by-layer``
    repeats another."""
    own = [setting for setting in results.settings if setting.verdict in NATIVE and not setting.by_layer]
    found = [assess(results, setting, dtype, "training") for setting in own]
    return [each for each in found if convolutions(each.counted)]


def without_library(results: Results, dtype: str) -> list[Assessment]:
    """How those did that keep convolution out of the vendor library, on the device itself."""
    found = [assess(results, setting, dtype, "training") for setting in results.settings]
    return [each for each in found if each.setting.verdict in ("vendor-off", "bypass") and each.counted]


def dtypes(results: Results) -> tuple[str, ...]:
    """The dtypes whose convolutions ran under all settings alike, float32 first; not that of a
    control alone."""
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
    """Seconds by setting over the throughput problems of ``dtype`` that every named setting was timed on:
    speed in one dtype says nothing of another.

    Where a run tests the convolutions of a program, what all of them take together, each as often as it
    was computed; for inference the forward ones alone. Else the geometric mean of forward with backward, for
    inference of forward. ``quantile`` "" takes the medians, and of what is added up the means, since a sum of
    medians is no median of sums; "_p10" and "_p90" the deciles. Settings without timings are left out; empty
    where no problem is common to those that have some.
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
    """The outcomes that timed a problem, by device, setting, and problem as the run was given it."""
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
    """Each outcome that is about a problem, with the problem as the run was given it. A setting that changes
    the memory format tests packed and channels-last operands at once: of a program that has both, its
    outcome counts for two problems."""
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
    """What computing a problem takes as often as ``counts`` says of each direction, by medians ("") or by
    what else is kept of the times ("_mean", "_p10", "_p90"); None where one that is counted was not timed."""
    total = 0.0
    for direction in directions:
        seconds = time_of(outcome.timings.get(direction.replace("-", "_") + quantile))
        if counts.get(direction) and seconds is None:
            return None
        total += counts.get(direction, 0) * (seconds or 0.0)
    return total


def _counts_by_problem(results: Results) -> dict[str, Mapping[str, int]]:
    """How often the program of the run computes each problem; empty where there is none, or where it did not
    come to compute any."""
    counts = {row["problem"]: row["counts"] for row in _recorded(results)}
    return counts if any(sum(each.values()) for each in counts.values()) else {}


def _recorded(results: Results) -> Sequence[Mapping[str, Any]]:
    """The problems of the program that the run is about, as its options have them."""
    shapes = results.options.get("shapes")
    found: Sequence[Mapping[str, Any]] = shapes["problems"] if shapes else ()
    return found


def failed(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Those that ran and failed; blocked ones only repeat another's failure, and one that was in
    flight when somebody ended the run says nothing."""
    return tuple(outcome for outcome in outcomes if outcome.fails)


def quoted(outcomes: Iterable[Outcome], most: int = 3) -> tuple[str, ...]:
    """One line for each of the first outcomes: what, and what it came to."""
    return tuple(
        f"{outcome.id}: {outcome.state}" + (f", {outcome.evidence[0]}" if outcome.evidence else "")
        for outcome in list(outcomes)[:most]
    )


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The gravest first; those of one severity stay in their order."""
    return tuple(sorted(findings, key=lambda finding: -SEVERITIES.index(finding.severity)))
