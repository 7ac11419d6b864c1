"""Functions that inspect processes through /proc and kill them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

_COMPILERS = ("clang", "hipcc", "amdclang", "lld", "ld.lld", "cc1", "llc", "comgr")


def active_seconds(pid: int) -> float:
    """Return the seconds that a process ran or waited for a CPU core, or 0 if the process has ended.

    Source: Documentation/scheduler/sched-stats.rst of Linux.
    """
    fields = _stat(pid)
    if not fields:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + _delayed_seconds(pid)


def _delayed_seconds(pid: int) -> float:
    """Return the seconds that the threads of a process waited for a CPU core."""
    nanoseconds = 0
    # Some Linux kernels have no schedstat (CONFIG_SCHED_INFO), and a thread can end while its file is read.
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            nanoseconds += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1])
    return nanoseconds / 1e9


def started(pid: int) -> Optional[int]:
    """Return the start time of a process in kernel ticks, or None if the process has ended."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def runs(pid: int, start: Optional[int]) -> bool:
    """Return True if the process that started at ``start`` (kernel ticks) still runs and is no zombie."""
    fields = _stat(pid)
    return bool(fields) and int(fields[19]) == start and fields[0] not in "ZX"


def pid_namespace() -> int:
    """Return the id of this process's PID namespace, which is different in each container."""
    return os.stat("/proc/self/ns/pid").st_ino


def bytes_read(pid: int) -> int:
    """Return a number that grows whenever the process reads from a file."""
    read = 0
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith(("rchar:", "read_bytes:")):
                read += int(line.split()[1])
    fields = _stat(pid)
    return read + int(fields[9]) if fields else read


def new_pages(pid: int) -> int:
    """Return the number of memory pages that a process has used for the first time (minor page faults)."""
    fields = _stat(pid)
    return int(fields[7]) if fields else 0


def short_name(pid: int) -> str:
    """Return the name of a process (at most 15 characters), or "" if the process has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def descendants(pid: int) -> dict[int, Optional[int]]:
    """Return the start times of all descendants of ``pid``, keyed by process id."""
    starts: dict[int, Optional[int]] = {}
    waiting = [pid]
    while waiting:
        threads = Path(f"/proc/{waiting.pop()}/task")
        # A process can end while its folder is read.
        with contextlib.suppress(OSError):
            for thread in os.listdir(threads):
                pids = [int(child) for child in (threads / thread / "children").read_text().split()]
                starts.update({child: started(child) for child in pids})
                waiting += pids
    return starts


def kill_group(group: int) -> None:
    """Kill a process group if it exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def kill_same(pids: Mapping[int, Optional[int]]) -> None:
    """Kill each process in ``pids`` that still has the given start time."""
    for pid, start in pids.items():
        if start is not None and started(pid) == start:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on, or [] if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def has_compiler(pid: int) -> bool:
    """Return True if a descendant of a process is a compiler."""
    return any(short_name(child).startswith(_COMPILERS) for child in descendants(pid))


def stuck_at(pid: int) -> list[str]:
    """Return lines from /proc that show where in the kernel a process is blocked."""
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
