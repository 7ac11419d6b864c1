"""The guardian: a process that cleans up after a controller that was killed.

Trials end with their controller by themselves. The compilers that they start, the tools that are run for
facts, and the folders of the run do not. A guardian reads on a pipe which process groups live, until the pipe
closes: then the controller is gone. After a normal end it finds nothing to do. This file is run as a program,
too, and needs nothing but the standard library for that.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

#: Dying processes may write for a moment yet, and one stuck in a driver for ever.
_PATIENCE = 10.0


class Guardian:
    """Lives as long as this process; kills the groups and removes the folders that outlive it."""

    def __init__(self) -> None:
        # A session and a folder of its own: Ctrl-C passes it by, and it keeps no mount busy.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            bufsize=0, cwd="/", start_new_session=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def remove(self, folder: Path) -> None:
        """A folder is to go with this process."""
        # Its name may hold any byte, a newline, too.
        self._send(f"={os.fsencode(folder).hex()}")

    def watch(self, group: int) -> None:
        """A process group lives."""
        self._send(f"+{group}")

    def forget(self, group: int) -> None:
        """A process group is gone; its number may be another's from now on."""
        self._send(f"-{group}")

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        # Someone may have killed the guardian; the run does not need it.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n".encode())


def guardian() -> Guardian:
    """Return the guardian of this process. The first call starts it."""
    # Two threads must not start two guardians: the one that nothing refers to would kill what it watches.
    with _starting:
        return _started()


@functools.lru_cache(maxsize=1)
def _started() -> Guardian:
    return Guardian()


_starting = threading.Lock()


def _guard() -> None:
    """Read until the controller is gone; clean up after it."""
    # What ends all processes of a run must not end the guardian before them.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    folders: list[str] = []
    for line in map(str.strip, sys.stdin):
        if line.startswith("="):
            folders.append(os.fsdecode(bytes.fromhex(line[1:])))
        else:
            (groups.add if line.startswith("+") else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    ends = time.monotonic() + _PATIENCE
    while any(map(os.path.exists, folders)) and time.monotonic() < ends:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


if __name__ == "__main__":
    _guard()
