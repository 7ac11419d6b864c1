"""Comparison of two runs: the states of the cases, the environment, times and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from rocmprobe.judge.comparison.changes import changes, unexplained_losses
from rocmprobe.judge.comparison.environment_changes import Difference, differences
from rocmprobe.judge.comparison.measurement_changes import LESS, MORE, Measured, Measurements, measured
from rocmprobe.model.baseline import describe_gpus, gpu_identities, states
from rocmprobe.model.changes import KINDS, LOST, MENDED, MISSING, NEW, REGRESSION, Change
from rocmprobe.model.results import BadInput, Outcome, Results


@dataclass(frozen=True)
class Side:
    """One of the two runs. ``path`` is the results file as the user typed it."""

    path: str
    started: str
    rocmprobe: str
    simulated: Optional[str]
    partial: bool
    recommendation: Optional[str]
    setting: Optional[str]


@dataclass(frozen=True)
class Comparison:
    """The differences between two runs.

    ``compared`` is the number of cases that both runs have. ``not_comparable`` has the reason for each device
    that is not compared. ``notes`` say what was not compared, and why.
    """

    old: Side
    new: Side
    compared: int
    changed: tuple[Change, ...]
    environment: tuple[Difference, ...]
    measurements: Measurements
    notes: tuple[str, ...] = ()
    not_comparable: Mapping[str, str] = field(default_factory=dict)

    def of(self, kind: str) -> tuple[Change, ...]:
        return tuple(change for change in self.changed if change.kind == kind)


def compare(old: Results, new: Results, old_path: str, new_path: str) -> Comparison:
    """Return the changes from ``old`` to ``new``.

    Raise BadInput if a run has no outcomes.
    """
    for results, path in ((old, old_path), (new, new_path)):
        if not results.outcomes:
            raise BadInput(f"{path}: contains no outcomes; name the results.json of another run")
    found = differences(old, new)
    shared = sorted(_devices(old) & _devices(new))
    apart = {device: why for device in shared if (why := _not_comparable_reason(old, new, device))}
    before, after = (states(_of(each, _devices(each) - apart.keys())) for each in (old, new))
    both = len(before.keys() & after.keys())
    timed = {device for device in shared if device not in apart and not _other_processor(old, new, device)}
    return Comparison(
        _side(old, old_path),
        _side(new, new_path),
        both,
        changes(before, after),
        found,
        measured(
            _of(old, timed), _of(new, timed), {each.name: each.device for each in old.settings if each.device}
        ),
        tuple(_notes(old, new, apart, shared, both)),
        apart,
    )


def worse(comparison: Comparison) -> bool:
    """Return True if a CI job should fail: the new run is worse, or the runs cannot be compared."""
    slower = _changed_as(comparison, MORE)
    lost = unexplained_losses(comparison.of(LOST))
    nothing = comparison.not_comparable or not comparison.compared
    return bool(comparison.of(REGRESSION) or lost or slower or nothing)


def verdict(comparison: Comparison) -> str:
    """Return the result in one line, such as "1 regression, 2 fixed, 1 setting slower" or "no change"."""
    parts = [_count(comparison, kind) for kind in KINDS if kind not in (NEW, MISSING) and comparison.of(kind)]
    for word, time, memory in ((MORE, "slower", "more"), (LESS, "faster", "less")):
        found = _changed_as(comparison, word)
        parts += _measured_in([each for each in found if each.kind == "time"], time)
        parts += _measured_in([each for each in found if each.kind == "first call"], f"{time} to start")
        parts += _measured_in([each for each in found if each.kind == "new size"], f"{time} for new sizes")
        parts += _measured_in([each for each in found if each.kind == "memory"], f"with {memory} memory")
    rest = ", ".join(parts) or "no change"
    alone = len({each.id for each in comparison.measurements.changed if _alone(each)})
    if alone:
        rest += f"; {alone} single {'time differs' if alone == 1 else 'times differ'}"
    if comparison.not_comparable:
        why = " and ".join(sorted(set(comparison.not_comparable.values())))
        return f"not comparable: {why}" + (f"; on the other devices: {rest}" if comparison.compared else "")
    return rest if comparison.compared else "nothing was compared: the runs have no test in common"


def _alone(each: Measured) -> bool:
    """Return True if ``each`` is the time of a single problem."""
    # A single time is weak evidence: on a CPU it differs in a third of comparisons without any change.
    return bool(each.id) and each.kind != "memory"


def _changed_as(comparison: Comparison, word: str) -> list[Measured]:
    return [each for each in comparison.measurements.changed_as(word) if not _alone(each)]


def as_data(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as data for JSON. docs/ci.md describes the keys."""
    return {"verdict": verdict(comparison), "worse": worse(comparison), **asdict(comparison)}


def _count(comparison: Comparison, kind: str) -> str:
    amount = len(comparison.of(kind))
    words = {
        REGRESSION: "regression" if amount == 1 else "regressions", LOST: "without a result",
        MENDED: "fixed",
    }  # fmt: skip
    return f"{amount} {words.get(kind, 'changed')}"


def _measured_in(found: list[Measured], word: str) -> list[str]:
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


def _not_comparable_reason(old: Results, new: Results, device: str) -> str:
    """Return why ``device`` cannot be compared, or "" if both runs used the same hardware."""
    # The reason contains no text from the results, which can come from an untrusted source.
    if old.simulated != new.simulated:
        one_is_real = not (old.simulated and new.simulated)
        return "a simulated machine and a real one" if one_is_real else "different simulated machines"
    return (
        ""
        if _is_cpu(device) or gpu_identities(old.machine) == gpu_identities(new.machine)
        else "different GPUs"
    )


def _other_processor(old: Results, new: Results, device: str) -> bool:
    return _is_cpu(device) and _processor(old) != _processor(new)


def _is_cpu(device: str) -> bool:
    return device.rpartition(":")[2] == "cpu"


def _processor(results: Results) -> str:
    name, cores = (results.machine.value(fact) for fact in ("cpu.name", "cpu.allowed"))
    return f"{name or 'a CPU'}, {cores if cores is not None else 'unknown'} core(s) allowed"


def _machine(results: Results) -> str:
    kind = f"simulated ({results.simulated})" if results.simulated else "real"
    ids = [" ".join(word for word in each[1:] if word != "None") for each in gpu_identities(results.machine)]
    return f"{kind}, {describe_gpus(results.machine)}" + (f", PCI {'; '.join(ids)}" if any(ids) else "")


def _notes(
    old: Results, new: Results, apart: Mapping[str, str], shared: list[str], compared: int
) -> Iterator[str]:
    if apart:
        yield (
            f"Results on {', '.join(apart)} are not compared, because a difference between two machines is "
            f"not a regression. The old run: {_machine(old)}. The new one: {_machine(new)}."
        )
    for device in shared:
        if device not in apart and _other_processor(old, new, device):
            yield (
                f"Times and memory of {device} are not compared: the old run is from {_processor(old)}, "
                f"the new one from {_processor(new)}."
            )
    for side, results in (("old", old), ("new", new)):
        if results.partial:
            yield f"The {side} run is incomplete: some of its tests did not run."
    if not compared and not apart:
        yield "Compare runs with the same device, driver, level and settings."
