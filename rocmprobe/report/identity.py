"""Facts that identify a run (machine, software, date), and its changes since the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from rocmprobe.model.cards import gpu_name
from rocmprobe.model.changes import CHANGED, LOST, MENDED, MISSING, NEW, REGRESSION, Changes
from rocmprobe.model.facts import FactName
from rocmprobe.model.results import Machine, Results
from rocmprobe.report.tables import Table
from rocmprobe.text import readable as text

#: Rows of the identity strip: label, and names of facts. The first known fact is the value.
_IDENTITY: tuple[tuple[str, tuple[FactName, ...]], ...] = (
    ("Kernel", ("kernel.release",)),
    ("ROCm", ("rocm.version", "hip.version")),
    ("MIOpen", ("miopen.version",)),
    ("PyTorch", ("torch.version",)),
    ("System", ("os.name",)),
    ("CPU", ("cpu.name",)),
)


def identity(results: Results) -> list[tuple[str, str]]:
    """Return machine, software and date of a run as (label, value)."""
    machine = results.machine
    rows = []
    for index, gpu in enumerate(machine.gpus):
        suffix = f" {index}" if len(machine.gpus) > 1 else ""
        rows += [
            (f"Card{suffix}", gpu_name(gpu)),
            (f"Native ISA{suffix}", text.show(gpu.native_isa.value)),
            (f"Effective ISA{suffix}", text.show(gpu.effective_isa.value)),
            (f"VRAM{suffix}", text.bytes_(text.numeric(gpu.vram_bytes.value))),
        ]
    if not machine.gpus:
        rows.append(("Card", "no GPU"))
    for label, names in _IDENTITY:
        value = first_value(machine, names)
        if value is not None and not (label == "CPU" and machine.gpus):
            rows.append((label, text.show(value)))
    return [
        *rows,
        ("Date", text.date(results.started)),
        ("rocmprobe", results.rocmprobe),
        ("Run time", text.seconds(run_seconds(results))),
    ]


def first_value(machine: Machine, names: Sequence[FactName]) -> Any:
    for name in names:
        value = machine.value(name)
        if value is not None:
            return value
    return None


def run_seconds(results: Results) -> float:
    started, finished = text.moment(results.started), text.moment(results.finished)
    if started and finished and (started.tzinfo is None) == (finished.tzinfo is None):
        return (finished - started).total_seconds()
    return sum(trial.seconds for trial in results.trials)


CHANGE_WORDS = {
    REGRESSION: "regressed", LOST: "without a result", MENDED: "fixed", CHANGED: "changed",
    NEW: "new", MISSING: "missing",
}  # fmt: skip
#: Largest number of changes of each kind on the page. results.json has all changes.
_CHANGES_SHOWN = 200


def changes_sentence(changes: Changes) -> str:
    """Return a sentence with the baseline's date and the number of changes of each kind."""
    counts = [f"{len(changes.of(kind))} {words}" for kind, words in CHANGE_WORDS.items() if changes.of(kind)]
    compared = text.count(changes.compared, "test")
    return (
        f"{compared} compared with the run of {text.date(changes.started)}: "
        f"{', '.join(counts) or 'no change'}"
    )


def changes_table(changes: Optional[Changes]) -> Optional[Table]:
    """Return a table of changes with the states before and after, or None if nothing changed."""
    rows = tuple(
        (change.id, words, change.before or "", change.after or "")
        for kind, words in CHANGE_WORDS.items()
        for change in (changes.of(kind)[:_CHANGES_SHOWN] if changes else ())
    )
    return Table(("question", "change", "before", "now"), rows) if rows else None
