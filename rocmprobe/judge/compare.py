"""What changed from one run to another: states first, then the environment, then times and memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Optional

from rocmprobe.baseline import cards, named, states
from rocmprobe.changes import KINDS, LOST, MENDED, MISSING, NEW, REGRESSION, Change
from rocmprobe.judge.changes import changes
from rocmprobe.judge.environment_changes import Difference, differences
from rocmprobe.judge.measurement_changes import LESS, MORE, Measured, Measurements, measured
from rocmprobe.model import BadInput, Outcome, Results


@dataclass(frozen=True)
class Side:
    """One of the two runs: the file as it was named, when it started, and what came of it."""

    path: str
    started: str
    rocmprobe: str
    simulated: Optional[str]
    partial: bool
    recommendation: Optional[str]
    setting: Optional[str]


@dataclass(frozen=True)
class Comparison:
    """``compared`` counts the questions that both runs answered or tried to; ``notes`` say what was not
    compared, and why."""

    old: Side
    new: Side
    compared: int
    changed: tuple[Change, ...]
    environment: tuple[Difference, ...]
    measurements: Measurements
    notes: tuple[str, ...] = ()

    def of(self, kind: str) -> tuple[Change, ...]:
        return tuple(change for change in self.changed if change.kind == kind)


def compare(old: Results, new: Results, old_path: str, new_path: str) -> Comparison:
    """What changed from ``old`` to ``new``; the paths are as the user named them.

    Raises BadInput where one of the two holds no outcome.
    """
    for results, path in ((old, old_path), (new, new_path)):
        if not results.outcomes:
            raise BadInput(f"{path}: it holds no outcome; name the results.json of a run that has some")
    before, after = states(old.outcomes), states(new.outcomes)
    reasons = {device: _strangers(old, new, device) for device in _devices(old) & _devices(new)}
    alike = {device for device, reason in reasons.items() if not reason}
    return Comparison(
        _side(old, old_path),
        _side(new, new_path),
        len(before.keys() & after.keys()),
        changes(before, after),
        differences(old, new),
        measured(
            _of(old, alike), _of(new, alike), {each.name: each.device for each in old.settings if each.device}
        ),
        tuple(_notes(old, new, reasons, len(before.keys() & after.keys()))),
    )


def worse(comparison: Comparison) -> bool:
    """Whether a job should fail: something fails that worked, takes clearly longer or more memory, was not
    learned because rocmprobe itself broke, or nothing was compared at all."""
    broke = any(change.after == "probe-error" for change in comparison.of(LOST))
    slower = comparison.measurements.told(MORE)
    return bool(comparison.of(REGRESSION) or slower) or broke or not comparison.compared


def verdict(comparison: Comparison) -> str:
    """The answer in one line, such as "1 regression, 2 mended, 1 setting slower" or "no change"."""
    told = [_count(comparison, kind) for kind in KINDS if comparison.of(kind)]
    for word, time, memory in ((MORE, "slower", "more"), (LESS, "faster", "less")):
        found = comparison.measurements.told(word)
        told += _measured_in([each for each in found if each.kind == "time"], time)
        told += _measured_in([each for each in found if each.kind == "first call"], f"{time} to start")
        told += _measured_in([each for each in found if each.kind == "memory"], f"with {memory} memory")
    if not comparison.compared:
        return "nothing was compared: the runs share no question"
    return ", ".join(told) or "no change"


def as_data(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON data (docs/compare.md)."""
    return {"verdict": verdict(comparison), "worse": worse(comparison), **asdict(comparison)}


def _count(comparison: Comparison, kind: str) -> str:
    amount = len(comparison.of(kind))
    words = {
        REGRESSION: "regression" if amount == 1 else "regressions", LOST: "no longer answered",
        MENDED: "mended", NEW: "new", MISSING: "missing",
    }  # fmt: skip
    return f"{amount} {words.get(kind, 'came out otherwise')}"


def _measured_in(found: list[Measured], word: str) -> list[str]:
    """Settings are counted, however many of their directions changed; single problems besides."""
    settings = {(each.device, each.driver, each.setting) for each in found if not each.id}
    single = {each.id for each in found if (each.device, each.driver, each.setting) not in settings}
    return [
        f"{len(names)} {noun}{'' if len(names) == 1 else 's'} {word}"
        for names, noun in ((settings, "setting"), (single, "problem"))
        if names
    ]


def _side(results: Results, path: str) -> Side:
    found = results.recommendation
    return Side(
        path, results.started, results.rocmprobe, results.simulated, results.partial,
        found.verdict if found else None, found.configuration.setting if found else None,
    )  # fmt: skip


def _devices(results: Results) -> set[str]:
    return {outcome.device for outcome in results.outcomes}


def _of(results: Results, devices: set[str]) -> tuple[Outcome, ...]:
    return tuple(outcome for outcome in results.outcomes if outcome.device in devices)


def _strangers(old: Results, new: Results, device: str) -> str:
    """Why times and memory of ``device`` say nothing about each other; empty where they do."""
    if old.simulated != new.simulated:
        theirs, ours = (f"simulated ({each.simulated})" if each.simulated else "real" for each in (old, new))
        return f"the old run is {theirs}, the new one {ours}"
    if device != "cpu":
        theirs, ours = named(old.machine), named(new.machine)
        return (
            ""
            if cards(old.machine) == cards(new.machine)
            else f"the old run is of {theirs}, the new one of {ours}"
        )
    theirs, ours = (_processor(each) for each in (old, new))
    return "" if theirs == ours else f"the old run is of {theirs}, the new one of {ours}"


def _processor(results: Results) -> str:
    name, cores = (results.machine.value(fact) for fact in ("cpu.name", "cpu.allowed"))
    return f"{name or 'a CPU'}, {cores if cores is not None else 'unknown'} core(s) allowed"


def _notes(old: Results, new: Results, reasons: dict[str, str], compared: int) -> Iterator[str]:
    for device, reason in sorted(reasons.items()):
        if reason:
            yield f"Times and memory of {device} are not compared: {reason}."
    for side, results in (("old", old), ("new", new)):
        if results.partial:
            yield f"The {side} run did not come to its end: what is missing in it was not asked."
    if not compared:
        yield "Compare runs with the same device, driver, level and settings."
