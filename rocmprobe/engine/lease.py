"""Leases of devices: only one process at a time uses a device, across all runs of a user.

A lease is an ``flock`` on a file in the user's runtime folder. The kernel releases the lock when the process
ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.targets import Device
from rocmprobe.model.results import BadInput, Setting
from rocmprobe.model.results_file import from_json
from rocmprobe.process.processes import pid_namespace, started
from rocmprobe.text.reading import read_json

with contextlib.suppress(ImportError):
    # Windows has no fcntl. There, this package only reads the results of runs.
    import fcntl


@dataclass(frozen=True)
class Holder:
    """A process that holds a lease.

    ``run`` is the folder of the run. ``since`` is in seconds since the epoch. ``start`` is the start time of
    the process in kernel ticks, and ``space`` its PID namespace.
    """

    pid: int
    run: str
    since: float
    start: Optional[int] = None
    space: int = 0

    @property
    def lives(self) -> bool:
        """True if the process runs. A process in another PID namespace counts as running."""
        return self.space != pid_namespace() or (self.start is not None and started(self.pid) == self.start)


def lock_until_exit(path: Path) -> bool:
    """Lock a file until this process ends. Return False if another process has locked the file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    locked = _lock(descriptor, wait=False)
    if not locked:
        os.close(descriptor)
    return locked


def _lock(descriptor: int, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        # If the file system does not support locks, the run continues without them.
        return True
    return True


def holder(device: str) -> Optional[Holder]:
    """Return the process that holds the lease of ``device``, or None."""
    try:
        found: Holder = from_json(Holder, read_json(_file(device), ""))
    except (OSError, BadInput, TypeError):
        # The file does not exist, is empty after a release, or is being written.
        return None
    return found if found.lives else None


class DeviceLease:
    """A lease of ``device`` (a name from ``lease_name``). ``run`` is the folder of the run."""

    def __init__(self, device: str, run: Path) -> None:
        self._device = device
        self._run = run
        self._descriptor: Optional[int] = None

    def take(self, wait: bool = True) -> bool:
        """Acquire the lease. If ``wait`` is False, return False instead of waiting."""
        # Children must not inherit the descriptor, because it would keep the lock after this process ends.
        descriptor = os.open(_file(self._device), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        locked = False
        try:
            locked = _lock(descriptor, wait)
        finally:
            if not locked:
                os.close(descriptor)
        if locked:
            self._descriptor = descriptor
            self._write_holder(descriptor)
        return locked

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def _write_holder(self, descriptor: int) -> None:
        pid = os.getpid()
        own = Holder(pid, str(self._run), time.time(), started(pid), pid_namespace())
        # The holder is only information, so a full disk must not stop the run.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(asdict(own)).encode(), 0)


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


def _file(device: str) -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or ""
    # Under sudo and in containers, the variable is often set although its folder does not exist.
    if not os.access(base, os.W_OK | os.X_OK):
        base = tempfile.gettempdir()
    folder = Path(base) / f"rocmprobe-locks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{re.sub(r'[^A-Za-z0-9_]', '_', device)}.lease"
