"""Warnings above the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rocmprobe.judge.findings.interrupted import resume
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.variables import DEFAULT, find
from rocmprobe.model.results import Gpu, Machine, Results
from rocmprobe.report import text
from rocmprobe.report.identity import card, overridden, show_gpu_name
from rocmprobe.report.page.layout import FITS, Fit

#: Smallest GPU use by other programs that causes a warning: per cent of the GPU's time, and fraction of its
#: memory. A desktop alone stays below these limits.
_BUSY, _FULL = 20, 0.5
_NAMED = 8


@dataclass(frozen=True)
class Banner:
    kind: str
    title: str
    body: str


def banners(results: Results, fit: Fit = FITS[0]) -> list[Banner]:
    """Return the warnings, the most severe first."""
    return [
        *_simulated(results), *_partial(results), *_noted(results), *_overridden(results.machine),
        *_dirty(results.machine), *_busy(results.machine.gpus), *_probe_errors(results), *_shortened(fit),
    ]  # fmt: skip


def _simulated(results: Results) -> Iterator[Banner]:
    if results.simulated:
        body = (
            f"Machine {results.simulated}: recorded facts, injected faults. Nothing here ran on "
            f"{card(results.machine)} or on any RDNA1 card. All speeds are those of the CPU that simulates "
            "the GPU."
        )
        yield Banner("simulated", "SIMULATED", body)


def _partial(results: Results) -> Iterator[Banner]:
    if results.partial or results.finished is None:
        body = (
            "The run stopped before it was done, so what follows is incomplete. "
            f"Continue it with `{resume(results)}`."
        )
        yield Banner("partial", "Partial run", body)


def _noted(results: Results) -> Iterator[Banner]:
    note = str(results.options.get("note") or "")
    if note:
        yield Banner("note", "Note", note)


def _overridden(machine: Machine) -> Iterator[Banner]:
    for native, effective in overridden(machine):
        variable = machine.variables.get(OVERRIDE)
        by = f" ({OVERRIDE}={variable.value})" if variable else ""
        body = f"The GPU is {native}, but the ROCm runtime treats it as {effective}{by}."
        yield Banner("override", "ISA override", body)


def _dirty(machine: Machine) -> Iterator[Banner]:
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
        yield Banner("dirty", "Environment", " ".join(parts))


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _busy(gpus: Sequence[Gpu]) -> Iterator[Banner]:
    for gpu in gpus:
        busy, used, whole = (
            text.numeric(fact.value) for fact in (gpu.busy_percent, gpu.vram_used_bytes, gpu.vram_bytes)
        )
        parts = [f"{busy:.0f} % busy"] if busy is not None and busy >= _BUSY else []
        if used is not None and whole and used >= _FULL * whole:
            parts.append(f"{text.bytes_(used)} of {text.bytes_(whole)} VRAM in use")
        if parts:
            body = (
                f"{show_gpu_name(gpu)} was in use by other programs when the run began: {', '.join(parts)}. "
                "Times and memory figures are less reliable."
            )
            yield Banner("busy", "GPU busy", body)


def _probe_errors(results: Results) -> Iterator[Banner]:
    broken = sum(outcome.state == "probe-error" for outcome in results.outcomes)
    if broken:
        verb = "says" if broken == 1 else "say"
        body = (
            f"{text.count(broken, 'check')} failed because of an error in rocmprobe itself and {verb} "
            "nothing about the machine."
        )
        yield Banner("probe", "Probe errors", body)


def _shortened(fit: Fit) -> Iterator[Banner]:
    if fit.left_out:
        yield Banner("shortened", "Shortened", f"To stay below 20 MB this page leaves out {fit.left_out}.")
