"""Evidence for the outcome of a case: exit status and relevant output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Optional

from rocmprobe.backends.direct.checks import CALL_PREFIX
from rocmprobe.knowledge.miopen_log import Reading
from rocmprobe.model.results import CRASHES
from rocmprobe.text.log import same

#: Maximum number of lines of each kind, e.g. of the exception and of the end of the output.
_MOST_LINES = 15
#: Maximum number of frames of a stack. Only the innermost frames are returned.
_FRAMES = 8
_CALL = re.compile(rf"^{re.escape(CALL_PREFIX)}(\w+)$", re.MULTILINE)
_TELLING = re.compile(r"error|fatal|fault|abort|terminate|what\(\)|exception", re.IGNORECASE)


def evidence_of(log: str, reading: Reading, raised: Iterable[str]) -> list[str]:
    """Return lines of evidence, the most informative first.

    ``reading`` is the parsed log of the vendor library. ``raised`` are lines of Python exceptions. Lines that
    differ only in numbers are returned once.
    """
    printed = [line for line in log.splitlines() if line.strip() and not line.startswith(CALL_PREFIX)]
    telling = [line for line in printed if _TELLING.search(line)]
    return _distinct(
        [
            *_distinct(reading.errors)[:_MOST_LINES], *reading.commands[-1:], *telling[-_MOST_LINES:],
            *_stack(printed), *raised, *printed[-_MOST_LINES:],
        ]
    )  # fmt: skip


def last_call(log: str) -> str:
    """Return ", in FUNCTION" if ``log`` is from a check without torch, which logs each call of a library.

    If the process crashed or hung, the last call did not return. Return "" if the log has no calls.
    """
    calls = _CALL.findall(log)
    return f", in {calls[-1]}" if calls else ""


def _distinct(lines: Iterable[str]) -> list[str]:
    found: dict[str, str] = {}
    for line in lines:
        found.setdefault(same(line), line)
    return list(found.values())


def _stack(printed: list[str]) -> list[str]:
    starts = [number for number, line in enumerate(printed) if line.startswith("Current thread 0x")]
    return printed[starts[-1] : starts[-1] + _FRAMES + 1] if starts else []


def crash_cause(status: str, oom_killed: Optional[bool] = None) -> str:
    """Return the failure of a crashed child. ``status`` is the result of ``Child.exit``."""
    if status == "SIGKILL" and oom_killed:
        return "oom-kill"
    if status in CRASHES:
        return status
    if status == "unkillable":
        return "killed"
    return "exit" if status.lstrip("-").isdigit() else "other-signal"


def describe_exit(status: str, oom_killed: Optional[bool] = None) -> str:
    """Describe an exit status in words, e.g. "exit code 3"."""
    if crash_cause(status, oom_killed) == "oom-kill":
        return "SIGKILL from the kernel, which had no memory left"
    return f"exit code {status}" if crash_cause(status) == "exit" else status


def oom_kills(root: Path = Path("/")) -> dict[str, int]:
    """Return how many processes the kernel has killed for lack of memory.

    The counts are for the whole machine ("machine") and for the cgroup of this process ("cgroup").
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


def killed_for_memory(before: Mapping[str, int], after: Mapping[str, int]) -> Optional[bool]:
    """Return True if the kernel killed a process between two results of ``oom_kills``."""
    # Prefer the cgroup's counter, because the machine's counter includes other programs.
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
