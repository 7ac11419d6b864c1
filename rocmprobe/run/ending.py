"""How a child ended that gave no answer, and whether the kernel ended it for want of memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from rocmprobe.model.results import CRASH_CAUSES


def cause(status: str, oom_killed: Optional[bool] = None) -> str:
    """The cause of a crash, from how the child ended: "0", a code, a signal, "killed", "unkillable"."""
    if status == "SIGKILL" and oom_killed:
        return "oom-kill"
    if status in CRASH_CAUSES:
        return status
    if status == "unkillable":
        return "killed"
    return "exit" if status.lstrip("-").isdigit() else "other-signal"


def describe(status: str, oom_killed: Optional[bool] = None) -> str:
    """The same as part of a sentence."""
    if cause(status, oom_killed) == "oom-kill":
        return "SIGKILL from the kernel, which had no memory left"
    return f"exit code {status}" if cause(status) == "exit" else status


def oom_kills(root: Path = Path("/")) -> dict[str, int]:
    """How often the kernel has killed for want of memory: in this process's cgroup, and on the machine.

    A counter that cannot be read is left out.
    """
    files = {"machine": root / "proc/vmstat"}
    try:
        rows = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except (OSError, ValueError):
        rows = []
    for row in rows:
        if row.startswith("0::/"):
            files["cgroup"] = root / "sys/fs/cgroup" / row[len("0::/") :] / "memory.events"
    counters = {name: _counter(path) for name, path in files.items()}
    return {name: count for name, count in counters.items() if count is not None}


def oom_killed(before: Mapping[str, int], after: Mapping[str, int]) -> Optional[bool]:
    """Whether the kernel killed for want of memory in between; None where there is no counter.

    The machine's counter may be somebody else's process, so the cgroup's own is believed first.
    """
    for name in ("cgroup", "machine"):
        if name in before and name in after:
            return after[name] > before[name]
    return None


def _counter(path: Path) -> Optional[int]:
    try:
        for line in path.read_text("utf-8").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return None
