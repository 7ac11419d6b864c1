"""The outcomes of a run, and what several findings and the recommendation derive from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Optional

from rocmprobe.checks import CHECKS, CONVOLUTIONS
from rocmprobe.judge.assessment import (
    BELOW_CONVOLUTION,
    OTHER_LAYERS,
    TRAINING,
    UNDER_FEW_SETTINGS,
    Assessment,
    batch_norm_setting,
    case_key,
    concerns_convolution,
    convolutions,
    counts,
    device_of,
    failed,
    is_under_autocast,
    library,
    representative,
)
from rocmprobe.judge.times import timed_problems
from rocmprobe.model.results import NATIVE, Outcome, Results, Setting


class Evidence:
    """The outcomes of a run. Each derived value is computed when it is first needed, and then kept."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.machine = results.machine
        self.settings = results.settings
        self.outcomes = results.outcomes
        #: The device that the recommendation is about, or None if nothing was tested.
        self.device = device_of(results)
        #: The tested vendor library: "MIOpen", "cuDNN" or "oneDNN".
        self.library = library(results)
        self._assessments: dict[tuple[str, str, str], Assessment] = {}

    @cached_property
    def under(self) -> Mapping[str, Sequence[Outcome]]:
        """All outcomes by setting."""
        found: dict[str, list[Outcome]] = {setting.name: [] for setting in self.settings}
        for outcome in self.outcomes:
            found.setdefault(outcome.setting, []).append(outcome)
        return found

    def of(self, check: str, setting: str = "default") -> tuple[Outcome, ...]:
        """Return the outcomes of ``check`` under ``setting``."""
        return tuple(outcome for outcome in self.under.get(setting, ()) if outcome.check == check)

    @cached_property
    def on_device(self) -> Sequence[Outcome]:
        """The outcomes on the device that the recommendation is about."""
        return [outcome for outcome in self.outcomes if outcome.device == self.device]

    @cached_property
    def timed(self) -> Mapping[tuple[str, str], Outcome]:
        """The successful timings on the device, by setting and problem."""
        found = timed_problems(self.results).items()
        return {(setting, text): each for (device, setting, text), each in found if device == self.device}

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of the tested convolutions, float32 first, without settings that have a fixed dtype."""
        controls = {setting.name for setting in self.settings if setting.dtype}
        tested = {
            outcome.dtype
            for outcome in self.outcomes
            if outcome.check == "convolution" and outcome.setting not in controls
        }
        return tuple(sorted(tested, key=lambda name: (name != "float32", name)))

    def assess(self, setting: Setting, dtype: str, purpose: str) -> Assessment:
        """Return the assessment of ``setting`` for convolutions of ``dtype``.

        For inference, only forward convolutions count. For training, these outcomes count:

        - convolutions in all directions, gradient flow and the autocast step, in ``dtype``
        - gradients by autograd and the training step, in every dtype
        - batch norm and the models with convolution, in ``dtype`` and in float32
        - failed measurements in ``dtype``

        Batch norm and checks under autocast are not enough: ``counted`` is empty if no other test ran in
        ``dtype``. An incomplete run can have training checks under other settings but none under ``setting``.
        In this case, ``counted`` is empty for training.
        """
        key = setting.name, dtype, purpose
        if key not in self._assessments:
            counted = self._counted(setting.name, dtype, purpose)
            proves = any(
                each.dtype == dtype and not is_under_autocast(each) and each.check != "batch-norm"
                for each in counted
            )
            if not proves or (purpose == "training" and self._lacks_training(counted)):
                counted = ()
            against = tuple(outcome for outcome in counted if not outcome.works)
            if counted and setting.device != "cpu":
                against += self._broken_below(setting, dtype)
            unproven = self._unproven(setting, dtype, purpose)
            self._assessments[key] = Assessment(setting, counted, against, unproven)
        return self._assessments[key]

    def assessments(self, dtype: str, purpose: str) -> list[Assessment]:
        """Return the assessments of all settings that were tested for ``dtype`` and ``purpose``."""
        found = (self.assess(setting, dtype, purpose) for setting in self.settings)
        return [each for each in found if each.counted]

    def vendor_library_assessments(self, dtype: str) -> list[Assessment]:
        """Return the training assessments of the settings that run convolution in the vendor library.

        Leave out settings without tested convolutions in ``dtype``, and those that send layers to PyTorch.
        """
        return [
            each
            for each in self.assessments(dtype, "training")
            if each.setting.verdict in NATIVE
            and not each.setting.pytorch_layers
            and convolutions(each.counted)
        ]

    def without_library(self, dtype: str) -> list[Assessment]:
        """Return the training assessments of the settings with the verdict "vendor-off" or "bypass"."""
        found = self.assessments(dtype, "training")
        return [each for each in found if each.setting.verdict in ("vendor-off", "bypass")]

    def broken_layers(self, setting: Setting, dtype: str) -> int:
        """Count the failed checks of layers other than convolution in ``dtype``, e.g. LSTM and attention.

        If a check did not run under ``setting``, count its failure under a setting that runs the same code.
        """
        own, alike = self.under[setting.name], self.under.get(representative(setting), ())
        checks = {outcome.check for outcome in own}
        outcomes = [*own, *(outcome for outcome in alike if outcome.check not in checks)]
        return sum(
            outcome.fails and outcome.dtype == dtype and outcome.device == self.device
            for outcome in outcomes
            if outcome.check in OTHER_LAYERS
        )

    def _counted(self, setting: str, dtype: str, purpose: str) -> tuple[Outcome, ...]:
        return tuple(
            outcome
            for outcome in self.under.get(setting, ())
            if outcome.device == self.device and outcome.meaning.counted and counts(outcome, dtype, purpose)
        )

    def _broken_below(self, setting: Setting, dtype: str) -> tuple[Outcome, ...]:
        """Return the failed copies, kernels and matrix products, without which no program works.

        If such a check did not run under ``setting``, use its outcome under fewer of the same cures.
        """
        members = {setting.name, *setting.members}
        fewer = [
            each.name
            for each in self.settings
            if each.name == "default" or {each.name} <= members or set(each.members or ("",)) < members
        ]
        fewer.sort(key=lambda name: (name != setting.name, name == "default", -name.count("+")))
        broken: list[Outcome] = []
        for check in BELOW_CONVOLUTION:
            for name in fewer:
                outcomes = [each for each in self.of(check, name) if each.dtype in ("float32", dtype)]
                outcomes = [each for each in outcomes if each.device == self.device and each.learned]
                if outcomes:
                    broken += [each for each in outcomes if each.fails]
                    break
        return tuple(broken)

    def _unproven(self, setting: Setting, dtype: str, purpose: str) -> tuple[Outcome, ...]:
        tested = self.under[setting.name]
        own = {outcome.check for outcome in tested}
        shared = self._counted(representative(setting), dtype, purpose)
        unproven = failed(
            each for each in shared if each.check in UNDER_FEW_SETTINGS and each.check not in own
        )
        if representative(setting) != setting.name:
            unproven += tuple(
                each
                for each in failed(shared)
                if each.check != "batch-norm" and not self._is_cured(each, setting)
            )
        beside = batch_norm_setting(setting)
        if beside != setting.name:
            others = failed(self._counted(beside, dtype, purpose))
            unproven += tuple(
                each for each in others if each.check == "batch-norm" and not self._trains(each, setting)
            )
        cases = {case_key(each) for each in shared if each.check in CONVOLUTIONS}
        return unproven + tuple(each for each in tested if each.state == "n/a" and case_key(each) in cases)

    @cached_property
    def _now_and_then(self) -> Collection[tuple[Optional[str], ...]]:
        """The keys of cases that fail now and then, and that the search for cures repeated."""
        repeated = {case_key(each) for each in self.outcomes if each.repeats > 1}
        return repeated & {case_key(each) for each in self.outcomes if each.intermittent}

    def _times(self, failure: Outcome) -> int:
        """Return how often a case must work under a setting to prove that ``failure`` is cured.

        One success does not prove that a failure that happens now and then is cured. Runs without a search
        for cures repeat no case, so one success must do.
        """
        return max(2, failure.repeats) if case_key(failure) in self._now_and_then else 1

    def _is_cured(self, failure: Outcome, setting: Setting) -> bool:
        """Return True if the case of ``failure`` works under ``setting`` as often as it must.

        A failure that does not happen now and then is left to the other rules.
        """
        times, key = self._times(failure), case_key(failure)
        return times == 1 or any(
            each.works and each.repeats >= times and case_key(each) == key
            for each in self.under[setting.name]
        )

    def _trains(self, failure: Outcome, setting: Setting) -> bool:
        """Return True if a test of training works under ``setting``: batch norm does, too."""
        times = self._times(failure)
        return any(
            each.check in TRAINING and each.works and each.repeats >= times
            for each in self.under[setting.name]
        )

    def _lacks_training(self, counted: Sequence[Outcome]) -> bool:
        return (
            self.results.partial
            and any(outcome.check in TRAINING for outcome in self.outcomes)
            and not any(outcome.check in TRAINING for outcome in counted)
        )

    def failures_of_pytorch_layers(
        self, options: Sequence[str], dtypes: Sequence[str] = ("float32",), bypass: bool = False
    ) -> tuple[Outcome, ...]:
        """Return the failures that rule out PyTorch's own kernels for the layers ``options``.

        Also return failures of convolution: those in the bypass if ``bypass`` is True, else those in the
        vendor library.
        """
        combining = {
            each.name
            for each in self.settings
            if (
                each.bypass and not each.vendor_library if bypass else set(options) & set(each.pytorch_layers)
            )
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
            for each in self.outcomes
            if each.dtype in dtypes and refutes(each) and concerns_convolution(each)
        )
