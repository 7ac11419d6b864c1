"""What a child that went silent was doing: its CPU time, its state, its own children."""

from __future__ import annotations

import os
from pathlib import Path

_COMPILERS = ("clang", "hipcc", "amdclang", "lld", "ld.lld", "cc1", "llc", "comgr")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far; 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def activity(pid: int, cpu_before: float, waited: float) -> str:
    """ "compiler-child", "busy" (at least a quarter of a core since ``cpu_before``) or "idle"."""
    if any(name.startswith(_COMPILERS) for name in _descendants(pid)):
        return "compiler-child"
    return "busy" if cpu_seconds(pid) - cpu_before > waited / 4 else "idle"


def state(pid: int) -> list[str]:
    """Lines of /proc that say where a process is stuck."""
    lines = []
    for name in ("wchan", "stack"):
        try:
            text = Path(f"/proc/{pid}/{name}").read_text().strip()
        except OSError:
            continue
        lines += [f"/proc {name}: {line}" for line in text.splitlines()[:8] if line != "0"]
    try:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return lines
    return lines + [line for line in status if line.startswith(("State:", "VmRSS:", "Threads:"))]


def _descendants(pid: int) -> list[str]:
    """Names of all processes below ``pid``."""
    names, waiting = [], [pid]
    while waiting:
        for children in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            try:
                pids = [int(child) for child in children.read_text().split()]
                names += [Path(f"/proc/{child}/comm").read_text().strip() for child in pids]
            except OSError:
                continue
            waiting += pids
    return names
