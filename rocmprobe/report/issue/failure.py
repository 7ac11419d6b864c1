"""The failure that a bug report is about, and the outcomes of the same test under other settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from rocmprobe.checks import DIRECT
from rocmprobe.judge.assessment import concerns_convolution, failed
from rocmprobe.judge.recommendation.advice import other_build
from rocmprobe.knowledge.layers import uses_pytorch_kernels
from rocmprobe.model.baseline import observed_state
from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import RUNGS, BadInput, Outcome, Results, Setting
from rocmprobe.model.states import STATES
from rocmprobe.report.repro.script import backend, driver_line, script

#: Groups of checks (rungs) that run in MIOpen. Other checks run in HIP, rocBLAS or PyTorch's own kernels.
_OF_MIOPEN = ("conv", "batch-norm", "primitives", "train")
#: Groups of checks on which convolution in MIOpen depends.
_BELOW = ("copy", "elementwise", "gemm")
_LIBRARIES, _SYSTEMS, _PYTORCH = (
    f"https://github.com/{name}/issues"
    for name in ("ROCm/rocm-libraries", "ROCm/rocm-systems", "pytorch/pytorch")
)
_STATES = tuple(STATES)
_GRAVE = 6
_TRIED = 50


@dataclass(frozen=True)
class Failure:
    """A failed outcome with its setting, stand-alone script and MIOpenDriver line.

    If there is no script, ``no_script`` is the reason.
    """

    outcome: Outcome
    setting: Setting
    script: str
    no_script: str
    driver: str

    @property
    def state(self) -> str:
        """Observed state, e.g. "wrong" instead of "xfail"."""
        return observed_state(self.outcome)

    @property
    def message(self) -> str:
        """Line that explains the failure."""
        attempts = (attempt.message for attempt in self.outcome.attempts)
        return next(filter(None, (*self.outcome.evidence, *attempts)), self.outcome.failure or self.state)


def gravest(results: Results) -> Optional[Failure]:
    """Return the failure that matters most to maintainers, or None if no failure concerns them.

    Failures in PyTorch come first. Within both groups, failures below convolution come first, because they
    can be the reason for the others, then failures in MIOpen. Failures under a setting that
    uses the vendor library come before others. Of failures that are alike, take the smallest problem.
    """
    settings = {setting.name: setting for setting in results.settings}
    order = {name: position for position, name in enumerate(settings)}

    def rank(outcome: Outcome) -> tuple[object, ...]:
        state = observed_state(outcome)
        return (
            outcome.check in DIRECT,
            not _is_below(outcome),
            not runs_in_miopen(results, outcome, settings[outcome.setting]),
            not settings[outcome.setting].vendor_library,
            order[outcome.setting],
            _STATES.index(state) if state in _STATES else len(_STATES),
            RUNGS.index(outcome.rung) if outcome.rung in RUNGS else len(RUNGS),
            outcome.dtype != "float32",
            *_simplicity(outcome),
        )

    ranked = sorted(concerning(results), key=rank)
    alike = [each for each in ranked if rank(each)[:_GRAVE] == rank(ranked[0])[:_GRAVE]][:_TRIED]
    made = (_failure(results, each, settings[each.setting]) for each in alike)
    first = next(made, None)
    if first is None or first.script:
        return first
    return next((each for each in made if each.script), first)


def tracker(results: Results, failure: Failure) -> str:
    """Return the address of the issue tracker of the layer that failed."""
    outcome = failure.outcome
    if backend(results, outcome, failure.setting) != "miopen":
        return _PYTORCH
    if outcome.rung == "gemm" or runs_in_miopen(results, outcome, failure.setting):
        return _LIBRARIES
    return _SYSTEMS if outcome.rung == "copy" else _PYTORCH


def _is_below(outcome: Outcome) -> bool:
    return outcome.rung in _BELOW and outcome.dtype == "float32"


def concerning(results: Results) -> list[Outcome]:
    """Return the failures in PyTorch or a library that PyTorch calls under the setting.

    Return [] if this PyTorch has no code for the GPU, which is no bug. Leave out failures of the bypass,
    and failures on another device or with other kernels than the case tests.
    """
    settings = {setting.name: setting for setting in results.settings}
    found = results.recommendation
    if found and other_build(results.machine, results.findings, found.verdict):
        return []
    return [
        outcome
        for outcome in failures(results)
        if outcome.setting in settings and _concerns(outcome, settings[outcome.setting])
    ]


def failures(results: Results) -> tuple[Outcome, ...]:
    """Return the outcomes that ran and failed, except failures that only concern memory."""
    return tuple(outcome for outcome in failed(results.outcomes) if concerns_convolution(outcome))


def problem_of(outcome: Outcome) -> Optional[Problem]:
    """Return the problem of ``outcome``, or None if it has none or the file names it wrongly."""
    try:
        return parse_problem(outcome.problem or "")
    except BadInput:
        return None


def _simplicity(outcome: Outcome) -> tuple[bool, int]:
    """Return a sort key: ordinary convolutions before others, then by the amount of work."""
    problem = problem_of(outcome)
    if problem is None:
        return False, 0
    special = problem.channels_last or problem.noncontiguous or problem.groups != 1
    return problem.kind != "conv2d" or special or set(problem.dilation) != {1}, problem.flops


def _concerns(outcome: Outcome, setting: Setting) -> bool:
    elsewhere = setting.device and setting.device != outcome.device
    return not (setting.bypass or elsewhere or uses_pytorch_kernels(setting, outcome))


def runs_in_miopen(results: Results, outcome: Outcome, setting: Setting) -> bool:
    """Return True if the case of ``outcome`` computes in MIOpen."""
    on_amd = backend(results, outcome, setting) == "miopen"
    in_miopen = outcome.rung in _OF_MIOPEN or outcome.check == "miopen-direct"
    return on_amd and setting.vendor_library and in_miopen


def _failure(results: Results, outcome: Outcome, setting: Setting) -> Failure:
    code, why = "", ""
    try:
        code = script(results, outcome)
    except BadInput as error:
        why = str(error)
    try:
        driver = driver_line(results, outcome)
    except BadInput as error:
        driver = f"no MIOpenDriver line: {error}"
    return Failure(outcome, setting, code, why, driver)


def same_case_outcomes(results: Results, outcome: Outcome) -> dict[str, Outcome]:
    """Return the outcomes of the same test under other settings, keyed by setting.

    Leave out settings that change dtype or memory format.
    """
    own = {setting.name for setting in results.settings if setting.changes_problems}
    return {
        each.setting: each
        for each in results.outcomes
        if _question(each) == _question(outcome) and each.setting not in (outcome.setting, *own)
    }


def _question(outcome: Outcome) -> tuple[object, ...]:
    return outcome.device, outcome.check, outcome.problem, outcome.direction, outcome.dtype
