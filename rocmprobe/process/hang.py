"""What a child that went silent was doing: the time for which it was active, its state, its own children."""

from __future__ import annotations

from pathlib import Path

from rocmprobe.process.processes import active_seconds, descendants, short_name

_COMPILERS = ("clang", "hipcc", "amdclang", "lld", "ld.lld", "cc1", "llc", "comgr")


def activity(pid: int, active_before: float, waited: float) -> str:
    """ "compiler-child", "busy" (active for at least a quarter of ``waited``) or "idle"."""
    if any(short_name(child).startswith(_COMPILERS) for child in descendants(pid)):
        return "compiler-child"
    return "busy" if active_seconds(pid) - active_before > waited / 4 else "idle"


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
