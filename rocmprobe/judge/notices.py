"""Warnings that a reader must see before the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rocmprobe.judge.findings.interrupted import resume
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.variables import DEFAULT, find
from rocmprobe.model.cards import gpu_name, poses
from rocmprobe.model.results import Gpu, Machine, Results
from rocmprobe.text import readable as text

#: Smallest GPU use by other programs that causes a warning: per cent of the GPU's time, and fraction of its
#: memory. A desktop alone stays below these limits.
_BUSY, _FULL = 20, 0.5
_NAMED = 8


@dataclass(frozen=True)
class Notice:
    kind: str
    title: str
    body: str


def notices(results: Results, live: bool = False) -> tuple[Notice, ...]:
    """Return the warnings, the most severe first. ``live`` is True while the run goes on."""
    return (
        *_simulated(results),
        *(_running() if live else _partial(results)),
        *_changed(results),
        *_damaged(results),
        *_noted(results),
        *_overridden(results.machine),
        *_dirty(results.machine),
        *_busy(results.machine.gpus),
        *_probe_errors(results),
    )


def _simulated(results: Results) -> Iterator[Notice]:
    if results.simulated:
        body = f"Machine {results.simulated}: nothing ran on a real GPU. Speeds are those of a CPU."
        yield Notice("simulated", "SIMULATED", body)


def _running() -> Iterator[Notice]:
    body = "This is a first answer. The run goes on, and this page reloads itself."
    yield Notice("partial", "Still running", body)


def _partial(results: Results) -> Iterator[Notice]:
    if results.partial or results.finished is None:
        body = (
            "The run stopped before it was done, so what follows is incomplete. "
            f"Continue it with `{resume(results)}`."
        )
        yield Notice("partial", "Partial run", body)


def _changed(results: Results) -> Iterator[Notice]:
    changes = results.options.get("changed")
    if isinstance(changes, (list, tuple)) and changes:
        body = (
            f"The run was continued after a change: {'; '.join(map(str, changes))}. The outcomes are from "
            "before and after the change. The facts are from before."
        )
        yield Notice("changed", "Changed machine", body)


def _damaged(results: Results) -> Iterator[Notice]:
    lines = results.options.get("damaged")
    if isinstance(lines, (list, tuple)) and lines:
        body = (
            f"{text.count(len(lines), 'record')} of the journal could not be read and "
            f"{'was' if len(lines) == 1 else 'were'} left out: line {_names(list(map(str, lines)))}. "
            "If the run is resumed, the tests without an outcome run again."
        )
        yield Notice("damaged", "Damaged journal", body)


def _noted(results: Results) -> Iterator[Notice]:
    note = str(results.options.get("note") or "")
    if note:
        yield Notice("note", "Note", note)


def _overridden(machine: Machine) -> Iterator[Notice]:
    pairs = [(gpu.native_isa.value, gpu.effective_isa.value) for gpu in machine.gpus]
    for native, effective in (pair for pair in pairs if poses(*pair)):
        variable = machine.variables.get(OVERRIDE)
        by = f" ({OVERRIDE}={variable.value})" if variable else ""
        body = f"The GPU is {native}, but the ROCm runtime treats it as {effective}{by}."
        yield Notice("override", "ISA override", body)


def _dirty(machine: Machine) -> Iterator[Notice]:
    """Yield a warning for environment variables that change the behaviour of ROCm or PyTorch."""
    reach: list[str] = []
    dropped: list[str] = []
    for name in machine.variables:
        row, label = find(name), machine.facts.get(f"variables.{name}")
        if name == OVERRIDE or (label and str(label.value).startswith(DEFAULT)):
            continue
        (reach if row is not None and row.keep else dropped).append(name)
    parts = [f"Variables passed to every trial: {_names(reach)}."] if reach else []
    if dropped:
        parts.append(f"Variables removed for all trials except those of “as-found”: {_names(dropped)}.")
    if parts:
        yield Notice("dirty", "Environment", " ".join(parts))


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _busy(gpus: Sequence[Gpu]) -> Iterator[Notice]:
    for gpu in gpus:
        busy, used, whole = (
            text.numeric(fact.value) for fact in (gpu.busy_percent, gpu.vram_used_bytes, gpu.vram_bytes)
        )
        parts = [f"{busy:.0f} % busy"] if busy is not None and busy >= _BUSY else []
        if used is not None and whole and used >= _FULL * whole:
            parts.append(f"{text.bytes_(used)} of {text.bytes_(whole)} VRAM in use")
        if parts:
            body = (
                f"{gpu_name(gpu)} was in use by other programs when the run began: {', '.join(parts)}. "
                "Times and memory figures are less reliable."
            )
            yield Notice("busy", "GPU busy", body)


def _probe_errors(results: Results) -> Iterator[Notice]:
    broken = sum(outcome.state == "probe-error" for outcome in results.outcomes)
    if broken:
        verb = "says" if broken == 1 else "say"
        body = (
            f"{text.count(broken, 'case')} failed because of an error in rocmprobe itself and {verb} "
            "nothing about the machine."
        )
        yield Notice("probe", "Probe errors", body)
