"""Which runs hold a device at this moment, in words."""

from __future__ import annotations

import time

from rocmprobe.report.text import one_line
from rocmprobe.run.locks import holders


def describe_holders(device: str) -> str:
    """``run FOLDER (pid N) on DEVICE since HH:MM:SS``, since the earliest of several; "" where none has it.

    ``device`` is the name of a lock, such as "cpu" or "GPU 0000:03:00.0".
    """
    found = holders(device).get(device, [])
    if not found:
        return ""
    runs = ", ".join(f"run {one_line(each.run)} (pid {each.pid})" for each in found)
    since = time.localtime(min(each.since for each in found))
    return f"{runs} on {device} since {time.strftime('%H:%M:%S', since)}"
