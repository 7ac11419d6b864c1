"""Machines on which one thing breaks, or every thing: each phase of a child crossed with each kind of fault.

They are made from the table here, in the words of a machine's file (``docs/catalogue.md``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

#: Where in a child's life a fault strikes.
PHASES = ("import", "prepare", "first-call", "steady", "teardown")
_SIGNALS = ("SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGKILL")
_EFFECTS = (
    "exit", "raise", "hang", "busy", "ignore-term", "flood", "garbage", "memory", "grandchild",
    "grandchild-exit",
)  # fmt: skip
#: What a fault of each kind does.
KINDS: Mapping[str, Mapping[str, str]] = {
    **{name: {"effect": "signal", "signal": name} for name in _SIGNALS},
    **{name: {"effect": name} for name in _EFFECTS},
}
ALL = "faults-all"
#: A problem that no fault is about.
FINE = "conv2d-fp32-n1-c1-i8x8-k3-f3x3"
_GPU = {
    "name": "Radeon that breaks", "vendor": "amd", "pci_id": "0x731f", "native_isa": "gfx1010",
    "effective_isa": "gfx1010",
}  # fmt: skip
_SOURCE = "made up: no machine breaks in all of these ways"
#: Short, since every hang is waited for; the fork server starts before any fault and has its own.
#: Every fault is tried, however many hang or crash.
_BUDGETS = {
    "server": 120, "start": 3, "first_call": 2, "steady": 2, "teardown": 3, "hangs": 1000, "crashes": 1000,
}  # fmt: skip


def single(phase: str, kind: str) -> str:
    """The name of the machine with this fault alone."""
    return f"faults-{phase}-{kind}"


def problem(phase: str, kind: str) -> str:
    """The problem that this fault is about, here and in ``faults-all``."""
    number = PHASES.index(phase) * len(KINDS) + list(KINDS).index(kind)
    return f"conv2d-fp32-n1-c{number + 1}-i8x8-k4-f3x3"


def data(name: str) -> Optional[Mapping[str, Any]]:
    """The machine as its file would say it, or None for a name that is none of these."""
    pairs = [(phase, kind) for phase in PHASES for kind in KINDS if name in (ALL, single(phase, kind))]
    if not pairs:
        return None
    if name == ALL:
        summary = (
            "every phase of a child x every kind of fault, each on a problem of its own; "
            "single ones are called faults-PHASE-KIND, "
            f"PHASE one of {', '.join(PHASES)}, KIND one of {', '.join(KINDS)}"
        )
    else:
        summary = f"one problem that meets {pairs[0][1]} in phase {pairs[0][0]}, and one that is right"
    return {
        "summary": summary,
        "source": _SOURCE,
        "gpus": [_GPU],
        "facts": {"torch.version": "2.4.0+rocm6.1", "torch.kind": "rocm"},
        "budgets": _BUDGETS,
        "fresh": True,
        "problems": [*(problem(phase, kind) for phase, kind in pairs), FINE],
        "faults": [_fault(phase, kind) for phase, kind in pairs],
    }


def _fault(phase: str, kind: str) -> dict[str, Any]:
    return {
        "library": "miopen", "phase": phase, **KINDS[kind], "settings": ["default"], "directions": ["fwd"],
        "problem": f"^{problem(phase, kind)}$", "message": "a fault of the simulated machine",
        "source": _SOURCE,
    }  # fmt: skip
