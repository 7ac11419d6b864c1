"""The watchdog of a session with a time limit, i.e. of ``rocmprobe check``.

The watchdog forks the prober, which runs the session (``engine/check.py``) and can hang with the GPU. The
watchdog itself reads files only in /proc, so nothing can block it. The prober sends the records of its
journal, and the records ``Facts`` and ``Over``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Optional, Union

import msgspec

from rocmprobe.engine.check_verdict import CheckProgress, Facts, Over
from rocmprobe.engine.journal import AnyRecord, Record, encode
from rocmprobe.lifetime import die_with_parent
from rocmprobe.process.processes import bytes_read, descendants, kill_group, kill_same, runs, started
from rocmprobe.text.reading import json_line

#: Seconds of the budget that are reserved for killing hung processes and for the verdict.
RESERVE = 1.0
#: Seconds between two tests whether a starting worker reads files.
_LOOK = 1.0
#: A process counts as unkillable (blocked in a driver) if it still exists this many seconds after SIGKILL.
_GONE_AFTER = 0.5
#: Largest fraction of the budget that can be used up before this program starts. If a wrapper script starts
#: this program by exec, the time of the script counts, too.
_OLDEST = 0.5
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


#: Function that sends a record from the prober to the watchdog.
Send = Callable[[msgspec.Struct], None]


class _Ended(BaseException):
    """Raised when SIGTERM, SIGINT or SIGHUP arrives."""


class Watchdog:
    """Supervisor that runs ``work`` in a prober and kills the prober after ``budget`` seconds."""

    def __init__(self, work: Callable[[Send], None], budget: float) -> None:
        self.progress = CheckProgress()
        self._work = work
        self._budget = budget
        self._began = _began(budget)
        self._deadline = self._began + max(budget - RESERVE, budget / 2)
        self._prober = 0
        self._bytes_read = -1

    def wait(self) -> CheckProgress:
        """Run the prober until it ends, the time is over, or a signal arrives."""
        readable, writable = os.pipe()
        try:
            _take_signals()
            self._prober = _forked(self._work, writable)
            os.close(writable)
            writable = -1
            self._listen(readable)
        except _Ended:
            self.progress.ended = "signal"
        finally:
            if writable >= 0:
                os.close(writable)
            self.progress.total = time.monotonic() - self._began
        return self.progress

    def end(self) -> None:
        """Kill every process of the check. Set ``progress.unkillable`` if a process survives."""
        with contextlib.suppress(_Ended):
            if self._prober:
                self._end()
        _ignore_signals()

    def limit(self, over: float, code: int) -> None:
        """Make this process exit with ``code`` once it has exceeded the budget by ``over`` seconds."""
        signal.signal(signal.SIGALRM, lambda *_: os._exit(code))
        left = self._began + self._budget + over - time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, max(0.01, left))

    def _end(self) -> None:
        below = descendants(self._prober)
        guardian = {pid: start for pid, start in below.items() if pid == self.progress.facts.guardian}
        left = {pid: start for pid, start in below.items() if pid not in guardian}
        for pid in left:
            # Kill the workers' groups, because a process whose parent has ended is no longer a descendant.
            kill_group(pid)
        left[self._prober] = started(self._prober)
        kill_same(left)
        ends = time.monotonic() + _GONE_AFTER
        # The guardian removes the temporary folder now, and then ends.
        while (left or guardian) and time.monotonic() < ends:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._prober, os.WNOHANG)
            left, guardian = _alive(left), _alive(guardian)
            time.sleep(0.005)
        self.progress.unkillable |= bool(left)

    def _listen(self, readable: int) -> None:
        buffer = b""
        while not self.progress.ended:
            now = time.monotonic()
            if now >= self._deadline:
                self.progress.ended = "time"
                return
            self._record_reads()
            if not select.select([readable], [], [], min(_LOOK, self._deadline - now))[0]:
                continue
            data = os.read(readable, 1 << 16)
            if not data:
                self.progress.ended = "died"
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                record: Union[Record, Facts, Over] = msgspec.convert(
                    json_line(line), Union[AnyRecord, Facts, Over]
                )
                record.update(self.progress)

    def _record_reads(self) -> None:
        """Update ``progress.last_read`` if a starting worker has read files since the last call."""
        if not self.progress.running or self.progress.outcomes:
            return
        # An import from a slow disk uses little CPU time, but is not a hang.
        read = sum(
            bytes_read(pid) for pid in descendants(self._prober) if pid != self.progress.facts.guardian
        )
        # Only an increase shows that a file was read. The sum decreases when a process ends.
        if 0 <= self._bytes_read < read:
            self.progress.last_read = time.monotonic()
        self._bytes_read = read


def _began(budget: float) -> float:
    """Return the start time of this process on the monotonic clock.

    If the process started more than ``budget / 2`` seconds ago, return the time ``budget / 2`` seconds ago.
    """
    now = time.monotonic()
    try:
        ticks = started(os.getpid())
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - (ticks or 0) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return now
    return now - min(max(0.0, age), _OLDEST * budget)


def _alive(pids: Mapping[int, Optional[int]]) -> dict[int, Optional[int]]:
    return {pid: start for pid, start in pids.items() if runs(pid, start)}


def _take_signals() -> None:
    def handle(number: int, frame: Optional[FrameType]) -> None:
        _ignore_signals()
        raise _Ended

    for number in _ENDING:
        signal.signal(number, handle)


def _ignore_signals() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def _forked(work: Callable[[Send], None], writable: int) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        die_with_parent(parent)
        _close_descriptors(writable)
        _run(work, functools.partial(_send, writable))
        code = 0
    finally:
        os._exit(code)


def _run(work: Callable[[Send], None], send: Send) -> None:
    try:
        work(send)
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        send(Over("unknown", "internal", text, traceback=traceback.format_exc()))


def _send(descriptor: int, record: msgspec.Struct) -> None:
    data = encode(record)
    while data:
        data = data[os.write(descriptor, data) :]


def _close_descriptors(kept: int) -> None:
    """Close all descriptors but ``kept``, and redirect the standard streams to /dev/null."""
    # A program that reads the command's output would wait until this process closes the standard streams.
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    listed: list[Any] = os.listdir("/proc/self/fd")
    for descriptor in map(int, listed):
        if descriptor > 2 and descriptor != kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)
