"""The lease of devices: only one process at a time uses a device, across the processes of all runs.

A lease is ``flock`` on a file for each device below the user's runtime folder. The kernel wakes waiting
processes in their order, and ends a lease with its process. The file names the holder, so that waiting
processes can report it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
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
    """A process that holds a device: its run's folder, and since when (seconds since the epoch).

    ``start`` and ``space`` distinguish the holder from a later process with the same number, and from a
    process of another container.
    """

    pid: int
    run: str
    since: float
    start: Optional[int] = None
    space: int = 0

    @property
    def lives(self) -> bool:
        """True unless the process is known to be gone.

        A process of another container counts as alive, because it is not visible.
        """
        return self.space != pid_namespace() or (self.start is not None and started(self.pid) == self.start)


def hold_for_good(path: Path) -> bool:
    """Lock a file until this process ends. Return False if another process has locked it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    locked = _lock(descriptor, wait=False)
    if not locked:
        os.close(descriptor)
    return locked


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Lock a file for the block, and create it if needed. Yield False if another process has locked it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _lock(descriptor, wait=False)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> bool:
    """Lock a file. If another process has locked the file, wait if ``wait`` is set, else return False."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        # Without lock support in the file system, the run must still continue.
        return True
    return True


def holder(device: str) -> Optional[Holder]:
    """Return the process of this user that holds the lease named ``device``, or None."""
    try:
        found: Holder = from_json(Holder, read_json(_file(device), ""))
    except (OSError, BadInput, TypeError):
        # The file is absent, released, or being written.
        return None
    return found if found.lives else None


class DeviceLease:
    """The lease of ``devices``, by the names that ``leased`` returns. ``run`` is the folder of the run."""

    def __init__(self, devices: Iterable[str], run: Path) -> None:
        # Every process takes devices in this order, so that no two processes wait for each other.
        self._devices = sorted(set(devices))
        self._run = run
        self._descriptors: list[int] = []

    def take(self, wait: bool = True) -> bool:
        """Take the devices. If another process holds a device, wait if ``wait`` is set, else return False."""
        taken = False
        try:
            taken = all(self._take(device, wait) for device in self._devices)
        finally:
            if not taken:
                self.release()
        return taken

    def release(self) -> None:
        """Release the devices."""
        while self._descriptors:
            descriptor = self._descriptors.pop()
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def _take(self, device: str, wait: bool) -> bool:
        # Children do not inherit it, because a leaked descriptor would keep the lock alive.
        descriptor = os.open(_file(device), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        locked = False
        try:
            locked = _lock(descriptor, wait)
        finally:
            if not locked:
                os.close(descriptor)
        if locked:
            self._descriptors.append(descriptor)
            self._write_holder(descriptor)
        return locked

    def _write_holder(self, descriptor: int) -> None:
        pid = os.getpid()
        own = Holder(pid, str(self._run), time.time(), started(pid), pid_namespace())
        # The name of the holder is only information, so a full disk must not fail the run.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(asdict(own)).encode(), 0)


def leased(case: Case, setting: Setting, targets: Iterable[Device]) -> list[str]:
    """Return the names of the devices that a case under ``setting`` uses, in a run with ``targets``."""
    own = next(each for each in targets if each.device == case.device)
    if setting.device == "cpu":
        return ["cpu"]
    if case.rung == "multi-gpu":
        return [lease_name(each) for each in targets]
    return [lease_name(own)]


def lease_name(target: Device) -> str:
    """Return the name of a device's lease: the PCI address of a GPU, else torch's name.

    torch's numbers of GPUs change with variables like HIP_VISIBLE_DEVICES.
    """
    address = target.gpu.address.value if target.gpu else None
    return f"GPU {address}" if address else target.device


def _file(device: str) -> Path:
    """Return the file of a lease. Create the folder of the file if needed."""
    base = os.environ.get("XDG_RUNTIME_DIR") or ""
    # In sudo and containers, the variable is often set but its folder is absent.
    if not os.access(base, os.W_OK | os.X_OK):
        base = tempfile.gettempdir()
    folder = Path(base) / f"rocmprobe-locks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{re.sub(r'[^A-Za-z0-9_]', '_', device)}.lease"
