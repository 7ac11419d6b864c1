"""Guardian: a helper process that cleans up after its parent, even if the parent was killed.

The guardian cleans up when the pipe from its parent closes. This file also runs as a program, so it imports
only the standard library.
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

#: Seconds for which the guardian tries to remove folders. Processes that are ending can still write to them.
_PATIENCE = 10.0


class Guardian:
    """A helper process that kills process groups and removes folders when this process ends."""

    def __init__(self) -> None:
        # In its own session, the guardian gets no Ctrl-C. In "/", it keeps no mount busy.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def remove(self, folder: Path) -> None:
        """Register a folder to remove when this process ends."""
        # Send the name in hexadecimal, because it can contain a newline.
        self._send(f"={os.fsencode(folder).hex()}")

    def watch(self, group: int) -> None:
        """Register a process group to kill when this process ends."""
        self._send(f"+{group}")

    def forget(self, group: int) -> None:
        """Unregister a process group that has ended."""
        self._send(f"-{group}")

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        # If the guardian was killed, the run continues without a guardian.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n".encode())


def guardian() -> Guardian:
    """Return the guardian of this process."""
    # Start only one guardian. Nothing would refer to a second guardian, so Python would free it, and a freed
    # guardian kills its groups.
    with _starting:
        return _started()


@functools.lru_cache(maxsize=1)
def _started() -> Guardian:
    return Guardian()


_starting = threading.Lock()


def _guard() -> None:
    """Read registrations until the pipe closes. Then kill the process groups and remove the folders."""
    # Ignore signals that are sent to all processes of a run, because the guardian must end last.
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
