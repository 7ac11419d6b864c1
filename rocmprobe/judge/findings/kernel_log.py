"""Finding about GPU faults in the kernel log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding, Machine

#: Kernel messages (kinds of ``dmesg.events``) after which a GPU is no longer reliable.
_GRAVE = frozenset(
    {
        "ring-timeout", "ring-reset-failed", "gpu-reset", "gpu-reset-succeeded", "gpu-reset-failed",
        "vram-lost", "page-fault", "init-failed", "mes-hang", "smu-hang", "compute-hang", "gpu-lost",
        "memory-error",
    }
)  # fmt: skip


def kernel_log(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the kernel has logged faults of a GPU since boot."""
    grave = [event for event in events(run.machine) if event["kind"] in _GRAVE]
    if grave:
        kinds = ", ".join(dict.fromkeys(event["kind"] for event in grave))
        title = f"The kernel has logged GPU faults since boot: {kinds}"
        evidence = tuple(f"{event['count']} x {event['line']}" for event in grave[:8])
        advice = "Restart the machine before you trust a result: after a reset, wrong results can continue."
        yield Finding("kernel-log", "warning", "gpu-hang-reset", "driver", title, evidence, advice)


def events(machine: Machine) -> list[dict[str, Any]]:
    """Return the GPU events in the kernel log."""
    return machine.value("dmesg.events") or []
