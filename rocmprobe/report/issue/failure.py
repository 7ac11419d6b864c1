"""The failure that a bug report is about, and the outcomes of the same test under other settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.assessment import concerns_convolution, failed
from rocmprobe.knowledge.layers import uses_pytorch_kernels
from rocmprobe.model.baseline import observed_state
from rocmprobe.model.problems import source_of
from rocmprobe.model.results import RUNGS, BadInput, Outcome, Results, Setting, Trial
from rocmprobe.model.states import STATES
from rocmprobe.report.repro.script import backend, child_variables, driver_line, script

TRACKERS = ("miopen", "rocm", "pytorch", "ultralytics")
#: Groups of checks (rungs) that run in MIOpen. Other checks run in HIP, rocBLAS or PyTorch's own kernels.
_OF_MIOPEN = ("conv", "batch-norm", "primitives", "train")
_STATES = tuple(STATES)
_GRAVE = 4
_TRIED = 50


@dataclass(frozen=True)
class Failure:
    """A failed outcome with setting, stand-alone script, MIOpenDriver line and environment variables.

    If there is no script, ``no_script`` is the reason.
    """

    outcome: Outcome
    setting: Setting
    script: str
    no_script: str
    driver: str
    variables: Mapping[str, str]
    others: tuple[Outcome, ...]

    @property
    def state(self) -> str:
        """Observed state, e.g. "wrong" instead of "xfail"."""
        return observed_state(self.outcome)

    @property
    def message(self) -> str:
        """Line that explains the failure."""
        attempts = (attempt.message for attempt in self.outcome.attempts)
        return next(filter(None, (*self.outcome.evidence, *attempts)), self.outcome.cause or self.state)


def gravest(results: Results, tracker: str) -> Optional[Failure]:
    """Return the failure that matters most to ``tracker``, or None if no failure concerns ``tracker``.

    Failures in PyTorch come before failures without PyTorch. Within both groups, failures under a setting
    that uses the vendor library come first.
    """
    settings = {setting.name: setting for setting in results.settings}
    order = {name: position for position, name in enumerate(settings)}
    found = concerning(results, tracker)
    if not found:
        return None

    def rank(outcome: Outcome) -> tuple[object, ...]:
        state = observed_state(outcome)
        return (
            outcome.driver != "torch",
            not settings[outcome.setting].vendor_library,
            order[outcome.setting],
            _STATES.index(state) if state in _STATES else len(_STATES),
            RUNGS.index(outcome.rung) if outcome.rung in RUNGS else len(RUNGS),
            outcome.dtype != "float32",
            tracker == "ultralytics" and "YOLO" not in source_of(outcome.problem or ""),
        )

    ranked = sorted(found, key=rank)
    alike = [each for each in ranked if rank(each)[:_GRAVE] == rank(ranked[0])[:_GRAVE]][:_TRIED]
    made = (_failure(results, each, settings[each.setting], ranked) for each in alike)
    first = next(made)
    return first if first.script else next((each for each in made if each.script), first)


def concerning(results: Results, tracker: str) -> list[Outcome]:
    """Return the failures that concern ``tracker``.

    The tracker "miopen" gets only failures in MIOpen. No tracker gets failures of the bypass.
    """
    settings = {setting.name: setting for setting in results.settings}
    return [
        outcome
        for outcome in failures(results)
        if outcome.setting in settings and _concerns(results, outcome, settings[outcome.setting], tracker)
    ]


def failures(results: Results) -> tuple[Outcome, ...]:
    """Return the outcomes that ran and failed, except failures that only concern memory."""
    return tuple(outcome for outcome in failed(results.outcomes) if concerns_convolution(outcome))


def _concerns(results: Results, outcome: Outcome, setting: Setting, tracker: str) -> bool:
    elsewhere = setting.device and setting.device != outcome.device
    if setting.bypass or elsewhere or uses_pytorch_kernels(setting, outcome):
        return False
    on_amd = backend(results, outcome, setting) == "miopen"
    if tracker == "miopen":
        return on_amd and setting.vendor_library and outcome.rung in _OF_MIOPEN
    return on_amd or tracker != "rocm"


def entered_miopen(failure: Failure) -> bool:
    """Return True if the failing computation ran in MIOpen. Call this only for a failure on an AMD GPU."""
    outcome = failure.outcome
    return failure.setting.vendor_library and outcome.rung in _OF_MIOPEN and outcome.phase != "start"


def _failure(results: Results, outcome: Outcome, setting: Setting, ranked: list[Outcome]) -> Failure:
    code, why, variables = "", "", {}
    try:
        code = script(results, outcome)
    except BadInput as error:
        why = str(error)
    try:
        driver = driver_line(results, outcome)
        variables = dict(child_variables(results, outcome, setting))
    except BadInput as error:
        driver = f"no MIOpenDriver line: {error}"
    others = tuple(each for each in ranked if each is not outcome)
    return Failure(outcome, setting, code, why, driver, variables, others)


def same_case_outcomes(results: Results, outcome: Outcome) -> dict[str, Outcome]:
    """Return the outcomes of the same test and driver under other settings, keyed by setting.

    Leave out settings that change dtype or memory format.
    """
    own = {setting.name for setting in results.settings if setting.changes_problems}
    return {
        each.setting: each
        for each in results.outcomes
        if _question(each) == _question(outcome) and each.setting not in (outcome.setting, *own)
    }


def _question(outcome: Outcome) -> tuple[object, ...]:
    return (
        outcome.device, outcome.driver, outcome.check, outcome.problem, outcome.direction, outcome.dtype,
    )  # fmt: skip


def trials_of(results: Results, outcome: Outcome) -> Iterator[Trial]:
    """Yield the child processes that ran the case, beginning with the last attempt."""
    tried = dict.fromkeys([outcome.trial, *(attempt.trial for attempt in reversed(outcome.attempts))])
    by_id = {trial.id: trial for trial in results.trials}
    yield from (by_id[name] for name in tried if name in by_id)
