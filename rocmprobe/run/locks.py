"""Device locks: a measurement has its device for itself, all other cases share it.

``flock`` on files below the user's runtime folder, so they hold across xdist workers and across
runs, and vanish with the process that holds them. Plain flock lets a stream of sharers starve the
exclusive waiter; everyone therefore passes a turnstile, which the exclusive one holds while it waits.
Beside a lock is a file for each process that holds it, so that a waiting one can name the holders.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional

from rocmprobe.model.results import BadInput, from_json
from rocmprobe.process.processes import pid_namespace, started
from rocmprobe.text.reading import read_json

#: Seconds after which a wait is reported; questions of other runs are mostly shorter.
UNNOTICED = 1.0
_LOOK = 0.01


@dataclass(frozen=True)
class Holder:
    """A process that holds a device: its run's folder, since when (seconds since the epoch) it holds it, and
    whether ``alone``. ``start`` and ``space`` distinguish it from a later process with its number, and from
    one of another container."""

    pid: int
    run: str
    since: float
    alone: bool
    start: Optional[int] = None
    space: int = 0

    @property
    def lives(self) -> bool:
        """Whether it may still be there; a process of another container cannot be seen from here."""
        return self.space != pid_namespace() or (self.start is not None and started(self.pid) == self.start)


def lock_folder() -> Path:
    """Where the locks of this user are; made if needed."""
    base = os.environ.get("XDG_RUNTIME_DIR") or ""
    # The variable survives sudo and containers; its folder often does not.
    if not os.access(base, os.W_OK | os.X_OK):
        base = tempfile.gettempdir()
    folder = Path(base) / f"rocmprobe-locks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def hold_for_good(path: Path) -> bool:
    """Lock a file until this process ends. Returns whether no other process has it locked."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    except OSError:
        # A file system without locks must not cost the run.
        os.close(descriptor)
    return True


def holders(device: Optional[str] = None) -> dict[str, list[Holder]]:
    """By lock the processes that hold it, of ``device`` or of all; those that died without a word are left
    out and forgotten. Empty where this user has no place for locks."""
    found: dict[str, list[Holder]] = {}
    try:
        folder = lock_folder()
    except OSError:
        return found
    for path in sorted(folder.glob(f"{_file_name(device)}.*.json" if device else "*.json")):
        try:
            data = read_json(path, "")
            name, holder = str(data["device"]), from_json(Holder, data)
        except (BadInput, TypeError, KeyError):
            # Let go or being written at this moment.
            continue
        if holder.lives:
            found.setdefault(name, []).append(holder)
        else:
            path.unlink(missing_ok=True)
    return found


class DeviceLock:
    """What this process holds of ``device``: nothing, a share, or all of it.

    ``run`` is the folder of its run, for those who wait. ``on_wait`` is called once in a wait that lasts
    longer than UNNOTICED.
    """

    def __init__(self, device: str, run: Path, on_wait: Callable[[], None] = lambda: None) -> None:
        self.device = device
        self._run = run
        self._on_wait = on_wait
        self._name = _file_name(device)
        self._descriptor: Optional[int] = None
        self._record = lock_folder() / f"{self._name}.{os.getpid()}.json"

    def take(self, alone: bool) -> float:
        """Hold the device shared, or ``alone``, in place of what is held so far; waits as long as it takes.
        Returns the seconds waited."""
        self.let_go()
        asked, self._reported = time.monotonic(), False
        unnoticed = asked + UNNOTICED
        turnstile = self._locked(f"{self._name}.turnstile", fcntl.LOCK_EX, unnoticed)
        try:
            mode = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
            self._descriptor = self._locked(self._name, mode, unnoticed)
        finally:
            os.close(turnstile)
        waited = time.monotonic() - asked
        pid = os.getpid()
        holder = Holder(pid, str(self._run), time.time(), alone, started(pid), pid_namespace())
        # Who waits may find no word of this one; no reason to end a run.
        with contextlib.suppress(OSError):
            self._record.write_text(json.dumps({"device": self.device, **asdict(holder)}), "utf-8")
        return waited

    def let_go(self) -> None:
        """Hold nothing any more."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                self._record.unlink()
            os.close(descriptor)

    def _locked(self, name: str, mode: int, unnoticed: float) -> int:
        # Not inherited by children: a leaked one would keep the lock alive.
        descriptor = os.open(lock_folder() / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _at_once(descriptor, mode):
                if time.monotonic() > unnoticed:
                    if not self._reported:
                        self._reported = True
                        self._on_wait()
                    # The kernel wakes those who wait in their order, which looking again and again does not.
                    fcntl.flock(descriptor, mode)
                    break
                time.sleep(_LOOK)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _at_once(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # A file system without locks must not cost the run.
        return True
    return True


def _file_name(device: str) -> str:
    return re.sub(r"\W", "_", device)
