"""Leases of devices: only one process at a time uses a device.

A lease is a lock on the GPU's folder in sysfs, which all users share, and on a file in the user's runtime
folder, which names the holder. The kernel releases both locks when the process ends. The package ``filelock``
polls, so a waiting run would starve beside a run that takes a lease for each case.
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

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.targets import Device
from rocmprobe.model.results import BadInput, Setting
from rocmprobe.model.results_file import from_json
from rocmprobe.text.reading import read_json

#: A lease is taken if one of several tries succeeds, because ``holder`` also locks the file for a moment.
_TRIES, _PAUSE = 3, 0.02
_REMEDY = "remove it, or name a folder of your own in XDG_RUNTIME_DIR"
#: Every user can open these folders. A render node or /dev/kfd needs a group, and to open it wakes a sleeping
#: GPU and blocks if the driver hangs.
_NODES = Path("/sys/bus/pci/devices")


@dataclass(frozen=True)
class Holder:
    """A process that holds a lease.

    ``run`` is the folder of the run. ``since`` is in seconds since the epoch.
    """

    pid: int
    run: str
    since: float


def lock(descriptor: int, wait: bool = False) -> bool:
    """Lock an open file. Return False if another process has locked the file and ``wait`` is False."""
    # Imported late, because Windows has no fcntl. There, this package only reads the results of runs.
    import fcntl

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
        with _path(device).open("rb") as stream:
            if lock(stream.fileno()):
                return None
        found: Holder = from_json(Holder, read_json(_path(device), ""))
    except (OSError, BadInput):
        # No process has had the lease, or the file is being written.
        return None
    return found


class DeviceLease:
    """A lease of ``device`` (a name from ``lease_name``). ``run`` is the folder of the run."""

    def __init__(self, device: str, run: Path) -> None:
        self._device = device
        self._run = run
        self._descriptors: list[int] = []

    def take(self, wait: bool = True) -> bool:
        """Acquire the lease. If ``wait`` is False, return False instead of waiting."""
        # Lock the shared folder first: who has locked the file is the holder, and does not wait.
        with contextlib.suppress(OSError):
            node = _NODES / self._device.removeprefix("GPU ")
            self._descriptors.append(os.open(node, os.O_RDONLY | os.O_DIRECTORY))
        own = _opened(self._device)
        self._descriptors.append(own)
        for descriptor in self._descriptors:
            for _ in range(_TRIES):
                if lock(descriptor):
                    break
                time.sleep(_PAUSE)
            else:
                if not wait or not lock(descriptor, wait=True):
                    self.release()
                    return False
        # The holder is only information, so a full disk must not stop the run.
        with contextlib.suppress(OSError):
            note = Holder(os.getpid(), str(self._run), time.time())
            os.ftruncate(own, 0)
            os.pwrite(own, json.dumps(asdict(note)).encode(), 0)
        return True

    def release(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


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


def check(targets: Iterable[Device]) -> None:
    """Raise BadInput if a lease cannot be taken later, e.g. because the disk is full."""
    for device in ("cpu", *map(lease_name, targets)):
        os.close(_opened(device))


def _opened(device: str) -> int:
    """Open the lease file of ``device``, and return its descriptor. Raise BadInput if this fails."""
    path = _path(device)
    try:
        # Python makes the descriptor non-inheritable. A child would keep the lock after this process ends.
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; name another folder in XDG_RUNTIME_DIR") from error


def _path(device: str) -> Path:
    return _folder() / f"{re.sub(r'[^A-Za-z0-9_]', '_', device)}.lease"


def _folder() -> Path:
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
