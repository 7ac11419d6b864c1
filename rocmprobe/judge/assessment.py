"""Assessments of settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from rocmprobe.checks import CONVOLUTIONAL_MODELS, CONVOLUTIONS, MODELS
from rocmprobe.knowledge.settings import LIBRARIES
from rocmprobe.model.results import (
    NATIVE,
    SEVERITIES,
    Finding,
    Outcome,
    Results,
    Setting,
)  # fmt: skip

#: Checks that show whether a network trains.
TRAINING = ("training-step", "batch-norm")
#: Checks of what every program needs, below convolution.
BELOW_CONVOLUTION = ("copy", "repeated", "elementwise", "gemm", "matmul", "reductions")
#: Checks of layers that most programs lack. They rank settings, but rule none out.
OTHER_LAYERS = ("rnn", "lstm", "gru", "attention", "data-loader")
#: Checks that run under few settings. Their outcomes are also valid for similar settings.
UNDER_FEW_SETTINGS = (
    "convolution-at-size", "problem-matrix", "gradients", "gradient-flow", *CONVOLUTIONAL_MODELS
)  # fmt: skip
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


def library(results: Results) -> str:
    """Return the name of the tested vendor library: "MIOpen", "cuDNN" or "oneDNN"."""
    target = next(iter(results.options.get("targets") or ()), None)
    backend = target.get("backend") if isinstance(target, Mapping) else None
    return LIBRARIES.get(str(backend), "oneDNN")


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


def is_under_autocast(outcome: Outcome) -> bool:
    return outcome.check == "autocast-step" or (outcome.check in MODELS and outcome.dtype != "float32")


def counts(outcome: Outcome, dtype: str, purpose: str) -> bool:
    """Return True if ``outcome`` matters for convolutions of ``dtype`` (see :meth:`Evidence.assess`)."""
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
    """Return True if at least one convolution was tested and all of them passed.

    A setting without a solver for a convolution proves nothing.
    """
    asked = convolutions(each.counted)
    idle = any(outcome.state == "n/a" for outcome in each.unproven)
    return bool(asked) and not idle and all(outcome.works for outcome in asked)


def failed_convolutions(each: Assessment) -> tuple[Outcome, ...]:
    """Return the convolutions that failed in the assessment ``each``."""
    return failed(convolutions(each.against))


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
