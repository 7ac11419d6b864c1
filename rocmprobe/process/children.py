"""Execution of untrusted programs with limits on time and output."""

from __future__ import annotations

import atexit
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from rocmprobe.process.guardian import guardian
from rocmprobe.process.processes import kill_group

#: Number of bytes of stdout, and of stderr, that are stored by default.
_KEPT = 1 << 18
#: Working directory of the program. The user's directory can contain e.g. a json.py, and `python -m` would
#: import this file.
_ELSEWHERE = "/"
#: Seconds to wait for the end of a killed process. A process that is blocked in a driver never ends.
KILLED_AFTER = 1.0
#: Seconds between checks for the end of a program that writes no output.
_LOOK = 0.02


@dataclass(frozen=True)
class ProgramResult:
    """The output of a program. ``failure`` is None if the exit code is 0."""

    failure: Optional[str]
    out: str = ""
    err: str = ""

    @property
    def last_error(self) -> str:
        """The last line of stderr."""
        return (self.err.strip().splitlines() or [""])[-1]


def run(
    command: Sequence[str], environ: Mapping[str, str], seconds: float, kept_bytes: int = _KEPT
) -> ProgramResult:
    """Run ``command`` for at most ``seconds``, with an empty standard input. Never raise.

    ``failure`` is for example "SIGSEGV", "exit status 1" or "no answer in 3 s". Only the first ``kept_bytes``
    of stdout and of stderr are stored.
    """
    try:
        process = _started(command, environ)
    except (OSError, ValueError) as error:
        return ProgramResult((getattr(error, "strerror", None) or "not a command").lower())
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = process.stdout.fileno(), process.stderr.fileno()
    kept = {out: bytearray(), err: bytearray()}
    with process.stdout, process.stderr:
        try:
            in_time = _read(process.pid, kept, time.monotonic() + seconds, kept_bytes)
        finally:
            dead = _end(process)
    failure = _failure(process.returncode) if in_time else no_answer(seconds, dead)
    return ProgramResult(failure, kept[out].decode("utf-8", "replace"), kept[err].decode("utf-8", "replace"))


def no_answer(seconds: float, dead: bool) -> str:
    """Return the failure of a program that ran longer than ``seconds``. ``dead`` says if it was killed."""
    return f"no answer in {seconds:g} s" + ("" if dead else ", and it cannot be killed")


def _started(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with _starting:
        # Start the guardian first. Without it, the program would continue if this process is killed.
        watching = guardian()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            start_new_session=True,
            bufsize=0,
            cwd=_ELSEWHERE,
        )
        _running.add(process.pid)
        watching.watch(process.pid)
    return process


def _read(pid: int, kept: dict[int, bytearray], deadline: float, limit: int) -> bool:
    """Read output until the program ends. Return False if the program still runs at the deadline."""
    with selectors.DefaultSelector() as open_ends:
        for end in kept:
            os.set_blocking(end, False)
            open_ends.register(end, selectors.EVENT_READ)
        while True:
            # Check before reading, so that the pipes contain all output of an ended program. Do not reap the
            # program yet, so that the number of its group is not reused before the group is killed.
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            more = False
            for key, _ in open_ends.select(0 if ended else _LOOK):
                data = os.read(key.fd, 1 << 16)
                kept[key.fd] += data[: limit - len(kept[key.fd])]
                more = more or bool(data)
                if not data:
                    open_ends.unregister(key.fd)
            # Do not wait for the streams to close, because a child of the program can keep them open.
            if ended and not more:
                return True
            if time.monotonic() > deadline:
                return ended
            if not open_ends.get_map():
                time.sleep(_LOOK)


def _failure(status: int) -> Optional[str]:
    if status >= 0:
        return f"exit status {status}" if status else None
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _end(process: subprocess.Popen[bytes]) -> bool:
    """Kill the program's process group. Return False if the program survives."""
    kill_group(process.pid)
    _running.discard(process.pid)
    guardian().forget(process.pid)
    try:
        process.wait(KILLED_AFTER)
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill_running() -> None:
    # Never release the lock. Otherwise another thread could start a program that nothing would kill. Wait
    # with a timeout, because a thread that holds the lock can block on a dead mount.
    _starting.acquire(timeout=KILLED_AFTER)
    for group in tuple(_running):
        kill_group(group)


#: Process groups of running programs. They must be killed at exit, because the waiting threads stop without
#: killing the programs.
_running: set[int] = set()
#: Lock that is held from the start of a program until its group is in ``_running``.
_starting = threading.Lock()
atexit.register(_kill_running)
