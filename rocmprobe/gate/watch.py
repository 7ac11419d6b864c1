"""The process that keeps the time of a check: it starts the one that asks, listens to it, and ends it.

It reads no file but those of /proc, so that nothing of the machine can hold it up.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, Optional

from rocmprobe.gate.messages import Order, Pipe, Seen
from rocmprobe.lifetime import die_with_parent
from rocmprobe.process.processes import descendants, kill_same, runs, started
from rocmprobe.text.reading import json_line

#: Seconds of the budget that are left for ending what hangs, and for the answer.
RESERVE = 1.0
#: Seconds between two looks at whether a worker that starts reads anything.
_LOOK = 1.0
#: Seconds after SIGKILL until a process counts as one that cannot be killed: it is stuck in a driver.
_GONE_AFTER = 0.5
#: How much older a process may be than the check that it became by exec, as a share of the budget.
_OLDEST = 0.5
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Ended(BaseException):
    """A signal asks this process to end."""


def begun(budget: float) -> float:
    """When this process started, on the monotonic clock. At most half of ``budget`` ago: what a wrapper did
    before it became this process by exec is not the check's time."""
    now = time.monotonic()
    try:
        ticks = started(os.getpid())
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - (ticks or 0) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return now
    return now - min(max(0.0, age), _OLDEST * budget)


class Watch:
    """One check. ``seen`` grows until ``wait`` returns."""

    def __init__(self, order: Order) -> None:
        self.seen = Seen()
        self._begun = begun(order.budget)
        self._deadline = self._begun + max(order.budget - RESERVE, order.budget / 2)
        self._order = order
        self._pid = 0
        self._read_io = -1

    def wait(self) -> Seen:
        """Start the other process and listen until it is done, the time is over, or a signal comes."""
        readable, writable = os.pipe()
        try:
            _take_signals()
            self._pid = _forked(self._order, readable, writable)
            os.close(writable)
            writable = -1
            self._listen(readable)
        except _Ended:
            self.seen.ended = "signal"
        finally:
            if writable >= 0:
                os.close(writable)
            self.seen.seconds = time.monotonic() - self._begun
        return self.seen

    def end(self) -> None:
        """End all that the check started. ``seen`` says then whether something could not be killed. A signal
        cuts this short: who sent it waits for the answer."""
        with contextlib.suppress(_Ended):
            if self._pid:
                self._end()
        _ignore_signals()

    def _end(self) -> None:
        kept = {int(self.seen.facts.get("guardian") or 0)}
        below = {pid: start for pid, start in descendants(self._pid).items() if pid not in kept}
        for pid in below:
            if _leads_group(pid):
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
        kill_same(below)
        own = started(self._pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        left = {**below, self._pid: own}
        ends = time.monotonic() + _GONE_AFTER
        while left and time.monotonic() < ends:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, os.WNOHANG)
            left = {pid: start for pid, start in left.items() if runs(pid, start)}
            time.sleep(0.005)
        self.seen.unkillable |= bool(left)
        # The guardian removes the folder now; it ends when that is done.
        self._await_guardian(ends)

    def limit(self, over: float, code: int) -> None:
        """Have this process end with ``code`` when the budget is over by ``over`` seconds."""
        signal.signal(signal.SIGALRM, lambda *_: os._exit(code))
        left = self._begun + self._order.budget + over - time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, max(0.01, left))

    def _await_guardian(self, ends: float) -> None:
        guardian = int(self.seen.facts.get("guardian") or 0)
        while guardian and runs(guardian, started(guardian)) and time.monotonic() < ends:
            time.sleep(0.005)

    def _listen(self, readable: int) -> None:
        buffer = b""
        while True:
            now = time.monotonic()
            if now >= self._deadline:
                self.seen.ended = "time"
                return
            self._look_at_start()
            if not select.select([readable], [], [], min(_LOOK, self._deadline - now))[0]:
                continue
            data = os.read(readable, 1 << 16)
            if not data:
                self.seen.ended = self.seen.ended or "died"
                return
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                message = json_line(line)
                if isinstance(message, dict):
                    self.seen.take(message, time.monotonic())
            if self.seen.ended:
                return

    def _look_at_start(self) -> None:
        """Whether a worker that imports torch reads files: from a slow disk that takes its time, and the
        processor has nothing to do meanwhile."""
        if not self.seen.asking or self.seen.answers:
            return
        guardian = int(self.seen.facts.get("guardian") or 0)
        read = sum(_read_bytes(pid) for pid in descendants(self._pid) if pid != guardian)
        if self._read_io not in (-1, read):
            self.seen.moved = time.monotonic()
        self._read_io = read


def _leads_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except OSError:
        return False


def _read_bytes(pid: int) -> int:
    """What a process has read so far, in bytes, and its page faults that had to wait for a disk."""
    read = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith(("rchar:", "read_bytes:")):
                read += int(line.split()[1])
        read += int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[9])
    return read


def _take_signals() -> None:
    """Let the signals that end a program raise _Ended, once."""

    def came(number: int, frame: Optional[FrameType]) -> None:
        _ignore_signals()
        raise _Ended

    for number in _ENDING:
        signal.signal(number, came)


def _ignore_signals() -> None:
    """The answer is on its way: a second signal must not cut it."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def _forked(order: Order, readable: int, writable: int) -> int:
    """Start the process that asks. It holds nothing of this one but the pipe."""
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
        _let_go_of_all_but(writable)
        _ask(order, Pipe(writable))
        code = 0
    finally:
        os._exit(code)


def _ask(order: Order, pipe: Pipe) -> None:
    try:
        from rocmprobe.gate.asking import ask

        ask(order, pipe)
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        pipe.tell("over", state="unknown", reason="internal", text=text, traceback=traceback.format_exc())


def _let_go_of_all_but(kept: int) -> None:
    """Close what this process has inherited: who reads the command's output waits until all have closed
    it."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    listed: list[Any] = os.listdir("/proc/self/fd")
    for descriptor in map(int, listed):
        if descriptor > 2 and descriptor != kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)
