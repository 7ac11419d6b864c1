"""Device locks, and the turns of cases under them: a measurement has its device for itself, all other cases
share it.

``flock`` on files below the user's runtime folder, so they hold across xdist workers and across
runs, and vanish with the process that holds them. Plain flock lets a stream of sharers starve the
exclusive waiter; everyone therefore passes a turnstile, which the exclusive one holds while it waits.
Beside a lock is a file for each process that holds it, so that a waiting one can name the holders.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

from rocmprobe.model.cases import Case
from rocmprobe.model.results import BadInput, Setting, from_json
from rocmprobe.process.processes import pid_namespace, started
from rocmprobe.run.journal import Journal
from rocmprobe.run.targets import Target
from rocmprobe.text.reading import read_json

with contextlib.suppress(ImportError):
    # Windows has none. No run is made there, but what a run left is read.
    import fcntl

#: Seconds after which a wait is reported; questions of other runs are mostly shorter.
UNNOTICED = 1.0
_LOOK = 0.01
#: The lock of all simulated machines. Their times mean nothing, so nobody measuring for real waits for them.
SIMULATED = "simulated machines"


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
        self._write_record(alone)
        return waited

    def take_at_once(self) -> bool:
        """Hold the device alone if nobody holds it or waits for it; returns whether it is held."""
        taken: list[int] = []
        try:
            for name in (f"{self._name}.turnstile", self._name):
                taken.append(_opened(name))
                if not _at_once(taken[-1], fcntl.LOCK_EX):
                    return False
            self._descriptor = taken.pop()
        finally:
            for descriptor in taken:
                os.close(descriptor)
        self._write_record(alone=True)
        return True

    def let_go(self) -> None:
        """Hold nothing any more."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                self._record.unlink()
            os.close(descriptor)

    def _write_record(self, alone: bool) -> None:
        pid = os.getpid()
        holder = Holder(pid, str(self._run), time.time(), alone, started(pid), pid_namespace())
        # Who waits may find no word of this one; no reason to end a run.
        with contextlib.suppress(OSError):
            self._record.write_text(json.dumps({"device": self.device, **asdict(holder)}), "utf-8")

    def _locked(self, name: str, mode: int, unnoticed: float) -> int:
        descriptor = _opened(name)
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


def _opened(name: str) -> int:
    # Not inherited by children: a leaked one would keep the lock alive.
    return os.open(lock_folder() / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


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


def lock_name(setting: Setting, target: Target, simulated: bool) -> str:
    """The lock of the device that computes under ``setting``: torch's numbers of GPUs change with variables
    such as HIP_VISIBLE_DEVICES, their PCI addresses do not."""
    if simulated:
        return SIMULATED
    if setting.device == "cpu" or target.device == "cpu":
        return "cpu"
    address = target.gpu.address.value if target.gpu else None
    return f"GPU {address}" if address else target.device


class Turns:
    """The device of one question after another.

    ``name_of`` is the lock of a case, ``conditions_of`` reads clocks and temperatures of what it measures.
    """

    def __init__(
        self,
        journal: Journal,
        name_of: Callable[[Case], str] = lambda case: case.device,
        conditions_of: Callable[[Case], Mapping[str, float]] = lambda case: {},
    ) -> None:
        self._journal = journal
        self._run = journal.path.parent.resolve()
        self._name_of = name_of
        self._conditions_of = conditions_of
        self._conditions: dict[str, dict[str, float]] = {}
        self._case: Optional[Case] = None
        self._lock: Optional[DeviceLock] = None
        self._alone: Optional[Mapping[str, float]] = None

    @contextmanager
    def of(self, case: Case) -> Iterator[None]:
        """The turn of ``case``: it shares its device until it measures, says nothing for a while, or ends."""
        self._case = case
        self._lock = DeviceLock(self._name_of(case), self._run, self._queued)
        try:
            self._take(alone=False)
            yield
        finally:
            self.let_go()
            self._lock = self._case = None

    def alone(self) -> None:
        """Let the case have its device for itself; waits until the others are done."""
        waited = self._take(alone=True)
        self._alone = {"at": time.time(), "waited": round(waited, 3)}
        self._read_conditions("before")

    def let_share_go(self) -> None:
        """Let others measure, unless the case does."""
        if self._alone is None:
            self.let_go()

    def let_go(self) -> None:
        """Let others have the device."""
        measured, self._alone = self._alone, None
        if self._case and measured:
            self._read_conditions("after")
            measured = {**measured, "until": time.time()}
        if self._lock:
            self._lock.let_go()
        if self._case and measured:
            self._journal.append("alone", case=self._case.id, device=self._name_of(self._case), **measured)

    def conditions(self) -> dict[str, dict[str, float]]:
        """The conditions ``before`` the first measurement since the last call and ``after`` the last one."""
        conditions, self._conditions = self._conditions, {}
        return conditions

    def _take(self, alone: bool) -> float:
        assert self._lock is not None, "within a turn"
        self._reported = False
        waited = self._lock.take(alone)
        if self._reported:
            self._write_queued(waited=round(waited, 3))
        return waited

    def _queued(self) -> None:
        self._reported = True
        assert self._case is not None, "within a turn"
        name = self._name_of(self._case)
        found = holders(name).get(name, [])
        self._write_queued(by=[{"run": each.run, "pid": each.pid, "since": each.since} for each in found])

    def _write_queued(self, by: Sequence[Mapping[str, Any]] = (), waited: Optional[float] = None) -> None:
        assert self._case is not None, "within a turn"
        name = self._name_of(self._case)
        self._journal.append("queued", case=self._case.id, device=name, by=by, waited=waited)

    def _read_conditions(self, when: str) -> None:
        assert self._case is not None, "within a turn"
        read = dict(self._conditions_of(self._case))
        if read and (when == "after" or when not in self._conditions):
            self._conditions[when] = read
