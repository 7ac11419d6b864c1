"""Leases of devices: only one process at a time uses a device, across all runs of a user.

A lease is a lock on a file in the user's runtime folder. The kernel releases the lock when the process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional

from filelock import FileLock, Timeout

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.targets import Device
from rocmprobe.model.results import BadInput, Setting
from rocmprobe.model.results_file import from_json
from rocmprobe.text.reading import read_json

#: Seconds until a lease counts as held by another process. ``holder`` tries to lock the file for a moment.
_BRIEF = 0.2

_REMEDY = "remove it, or name a folder of your own in XDG_RUNTIME_DIR"


@dataclass(frozen=True)
class Holder:
    """A process that holds a lease.

    ``run`` is the folder of the run. ``since`` is in seconds since the epoch.
    """

    pid: int
    run: str
    since: float


def holder(device: str) -> Optional[Holder]:
    """Return the process that holds the lease of ``device``, or None."""
    with contextlib.suppress(Timeout), FileLock(_path(device, "lock")).acquire(timeout=0):
        return None
    try:
        found: Holder = from_json(Holder, read_json(_path(device, "json"), ""))
    except (OSError, BadInput):
        # The file is being written.
        return None
    return found


class DeviceLease:
    """A lease of ``device`` (a name from ``lease_name``). ``run`` is the folder of the run."""

    def __init__(self, device: str, run: Path) -> None:
        self._device = device
        self._run = run
        self._lock = FileLock(_path(device, "lock"))

    def take(self, wait: bool = True) -> bool:
        """Acquire the lease. If ``wait`` is False, return False instead of waiting."""
        try:
            self._lock.acquire(timeout=-1 if wait else _BRIEF)
        except Timeout:
            return False
        # The holder is only information, so a full disk must not stop the run.
        with contextlib.suppress(OSError):
            own = asdict(Holder(os.getpid(), str(self._run), time.time()))
            _path(self._device, "json").write_text(json.dumps(own), "utf-8")
        return True

    def release(self) -> None:
        self._lock.release()


def leased(case: Case, setting: Setting, targets: Iterable[Device]) -> str:
    """Return the lease name of the device that ``case`` uses under ``setting``."""
    if setting.device == "cpu":
        return "cpu"
    return lease_name(next(each for each in targets if each.device == case.device))


def lease_name(target: Device) -> str:
    """Return the name of a device's lease."""
    # Prefer the PCI address, because torch's index of a GPU depends on variables like HIP_VISIBLE_DEVICES.
    address = target.gpu.address.value if target.gpu else None
    return f"GPU {address}" if address else target.device


def _path(device: str, suffix: str) -> Path:
    return folder() / f"{re.sub(r'[^A-Za-z0-9_]', '_', device)}.{suffix}"


def folder() -> Path:
    """Return the folder of the leases.

    Raise BadInput if the folder cannot be used, or if other users can change it.
    """
    base = os.environ.get("XDG_RUNTIME_DIR") or ""
    # Under sudo and in containers, the variable is often set although its folder does not exist.
    if not os.access(base, os.W_OK | os.X_OK):
        base = tempfile.gettempdir()
    path = Path(base) / f"rocmprobe-locks-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; {_REMEDY}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise BadInput(f"{path}: is a link, or other users can change it; {_REMEDY}")
    return path
