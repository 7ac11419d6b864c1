"""Facts from /proc about a process and its descendants, including one that went silent."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

_COMPILERS = ("clang", "hipcc", "amdclang", "lld", "ld.lld", "cc1", "llc", "comgr")


def active_seconds(pid: int) -> float:
    """For how long a process has run so far, in user and system mode, or was ready to and waited for a core
    (Documentation/scheduler/sched-stats.rst of Linux, where the kernel counts it); 0 where it is gone."""
    fields = _stat(pid)
    if not fields:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + _delayed_seconds(pid)


def _delayed_seconds(pid: int) -> float:
    """What the threads of a process have waited for a core: on a machine with much else to do, one that
    spins gets little of it."""
    nanoseconds = 0
    # No such file without CONFIG_SCHED_INFO; and threads end.
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            nanoseconds += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1])
    return nanoseconds / 1e9


def started(pid: int) -> Optional[int]:
    """When a process started, in the kernel's ticks: with its number, this names it for good."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def runs(pid: int, start: Optional[int]) -> bool:
    """Whether the process with this number that started then is there, and not only waits to be fetched by
    its parent: in a container nobody may."""
    fields = _stat(pid)
    return bool(fields) and int(fields[19]) == start and fields[0] not in "ZX"


def pid_namespace() -> int:
    """Which numbering of processes this one sees; containers have their own."""
    return os.stat("/proc/self/ns/pid").st_ino


def short_name(pid: int) -> str:
    """As the kernel keeps it, 15 characters; empty where the process is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def descendants(pid: int) -> dict[int, Optional[int]]:
    """All processes below ``pid``, whatever their session, and when each started."""
    found: dict[int, Optional[int]] = {}
    waiting = [pid]
    while waiting:
        threads = Path(f"/proc/{waiting.pop()}/task")
        # A process may end while it is looked at, and its folder under the reader's hands.
        with contextlib.suppress(OSError):
            for thread in os.listdir(threads):
                pids = [int(child) for child in (threads / thread / "children").read_text().split()]
                found.update({child: started(child) for child in pids})
                waiting += pids
    return found


def kill_same(pids: Mapping[int, Optional[int]]) -> None:
    """SIGKILL to those that live and started when it says: a number may be another process's by now."""
    for pid, start in pids.items():
        if start is not None and started(pid) == start:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def activity(pid: int, active_before: float, waited: float) -> str:
    """What a process that went silent was doing: "compiler-child", "busy" (active for at least a quarter of
    ``waited``) or "idle"."""
    if any(short_name(child).startswith(_COMPILERS) for child in descendants(pid)):
        return "compiler-child"
    return "busy" if active_seconds(pid) - active_before > waited / 4 else "idle"


def stuck_at(pid: int) -> list[str]:
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
