"""Comparison of two runs of one machine, and the row of a run in a table of many machines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean
from typing import Optional

from rocmprobe.judge.changes import changes, unexplained_losses
from rocmprobe.judge.noise import ERRORS, SAME_TIME, change, drift, yardsticks
from rocmprobe.knowledge.expectations import observed
from rocmprobe.model.baseline import describe_gpus, different_machines, observed_state, states, versions
from rocmprobe.model.changes import LOST, REGRESSION, Change
from rocmprobe.model.results import Outcome, Results

_TIMES = ("fwd", "bwd_data", "bwd_weights", "fwd_bwd", "step")
#: Smallest factor that counts as a change of memory. Equal runs differ by a factor of up to 1.2, because the
#: bypass chooses its algorithms by measurement.
_WORTH_MEMORY = 1.25
#: If the device's own speed changed by more than this factor, another program used it or its clocks differed.
_QUIET = 1.25
_Pairs = Sequence[tuple[Outcome, Outcome]]


@dataclass(frozen=True)
class MeasuredChange:
    """The times of a setting, or the peak memory of a case, that changed beyond the noise.

    ``case`` is the id of the case, or "" for times. ``ratio`` is new / old, for times the geometric mean.
    ``noise`` is the factor by which equal runs can differ.
    """

    device: str
    setting: str
    case: str
    ratio: float
    noise: float


@dataclass(frozen=True)
class Comparison:
    """The changes between two runs.

    ``compared`` is the number of cases in both runs. ``not_comparable`` is the reason why nothing is
    compared, or "". ``notes`` say which measurements are not compared, and why.
    """

    not_comparable: str = ""
    compared: int = 0
    changed: tuple[Change, ...] = ()
    measured: tuple[MeasuredChange, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def worse(self) -> bool:
        """True if a CI job should fail: the new run is worse, or the runs cannot be compared."""
        regressed = any(change.kind == REGRESSION for change in self.changed)
        lost = unexplained_losses(change for change in self.changed if change.kind == LOST)
        more = any(change.ratio > 1 for change in self.measured)
        return bool(regressed or lost or more or self.not_comparable)


def run_row(results: Results, path: str) -> dict[str, object]:
    """Return a run as one row of a table: its machine, versions, recommendation and cases by state."""
    machine, recommended = results.machine, results.recommendation
    return {
        "run": path,
        "started": results.started,
        "partial": results.partial,
        "simulated": results.simulated or "",
        "chip": describe_gpus(machine) if machine.gpus else str(machine.value("cpu.name") or "CPU"),
        "rocmprobe": results.rocmprobe,
        **versions(machine),
        "verdict": recommended.verdict if recommended else "",
        "setting": (recommended and recommended.configuration.setting) or "",
        "variables": dict(recommended.configuration.env) if recommended else {},
        "states": Counter(map(observed_state, results.outcomes)),
    }


def compare(old: Results, new: Results) -> Comparison:
    """Return the changes from ``old`` to ``new``."""
    if different := different_machines(old, new.machine, new.simulated):
        return Comparison(f"the old run is from {different[0]}, the new one from {different[1]}")
    before, after = states(old.outcomes), states(new.outcomes)
    both = len(before.keys() & after.keys())
    if not both:
        return Comparison("they have no test in common")
    cpus = {(run.machine.value("cpu.name"), run.machine.value("cpu.allowed")) for run in (old, new)}
    measured: list[MeasuredChange] = []
    notes = []
    for device, pairs in _pairs(old, new).items():
        if device == "cpu" and len(cpus) > 1:
            notes.append("Times and memory of the CPU are not compared: its name or cores differ.")
            continue
        factor = _speed_change(pairs)
        if factor is None or factor > _QUIET:
            why = f"differs by a factor of {factor:.2f}" if factor else "is unknown"
            notes.append(f"Times of {device} are not compared, because its speed {why} (check throughput).")
            factor = None
        measured += _measured(pairs, factor)
    return Comparison("", both, changes(before, after), tuple(measured), tuple(notes))


def _pairs(old: Results, new: Results) -> dict[str, list[tuple[Outcome, Outcome]]]:
    """Return the outcomes that work in both runs, keyed by the device on which they ran."""
    # Under a setting for the CPU, the cases of a GPU run on the CPU.
    places = {setting.name: setting.device for setting in old.settings}
    later = {outcome.id: outcome for outcome in new.outcomes}
    by_device: dict[str, list[tuple[Outcome, Outcome]]] = {}
    for before in old.outcomes:
        after = later.get(before.id)
        if after and observed(before).works and observed(after).works:
            by_device.setdefault(places.get(before.setting) or before.device, []).append((before, after))
    return by_device


def _speed_change(pairs: _Pairs) -> Optional[float]:
    """Return the factor, 1 or more, by which the device's own speed changed, or None if unknown.

    What changed the speed under one setting can also have changed it under the others, so return the largest
    factor of all settings.
    """
    factors: dict[str, list[float]] = {}
    for old, new in pairs:
        factor = drift(old.timings, new.timings)
        if yardsticks(old.timings) and yardsticks(new.timings) and math.isfinite(factor):
            factors.setdefault(old.setting, []).append(factor)
    return max(map(geometric_mean, factors.values()), default=None)


def _measured(pairs: _Pairs, factor: Optional[float]) -> Iterator[MeasuredChange]:
    """Yield the changes of memory and of times beyond the noise.

    The noise of times is the error of their medians, multiplied by ``factor``, the change of the device's own
    speed. If ``factor`` is None, times are left out.
    """
    groups: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for old, new in pairs:
        for key in _TIMES if factor else ():
            if measured := change(old.timings, new.timings, key):
                groups.setdefault((old.device, old.setting, ""), []).append(measured)
        before, after = (outcome.memory.get("peak_bytes") for outcome in (old, new))
        if isinstance(before, int) and isinstance(after, int) and min(before, after) > 0:
            groups[old.device, old.setting, old.id] = [(after / before, 0.0)]
    for (device, setting, case), group in groups.items():
        ratio, error = geometric_mean([factor for factor, _ in group]), fmean([error for _, error in group])
        noise = _WORTH_MEMORY if case else max(SAME_TIME, (factor or 1) * math.exp(ERRORS * error))
        if not 1 / noise <= ratio <= noise:
            yield MeasuredChange(device, setting, case, ratio, noise)
