"""Functions that run code when a process ends, including forked and multiprocessing children."""

from __future__ import annotations

import atexit
import json
import os
from multiprocessing import util
from typing import Any, Callable

#: Objects that multiprocessing calls after a fork. This list keeps the objects alive, because multiprocessing
#: has only weak references to them.
_kept: list[Any] = []


def append(path: str, line: object) -> None:
    """Append ``line`` to the file as JSON, in one write, so that lines of several processes do not mix.

    Raises OSError if the file cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)


class _Ending:
    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._ended_in = 0

    def __call__(self) -> None:
        if self._ended_in != os.getpid():
            self._ended_in = os.getpid()
            self._call()

    def follow(self) -> None:
        """Make this object the last finalizer of a multiprocessing child, which skips atexit functions."""
        util.Finalize(None, self, exitpriority=-1000)


def at_end(call: Callable[[], None]) -> None:
    """Call ``call`` when this process ends, and when each process forked from it ends.

    If a signal or ``os._exit`` ends the process, there is no call.
    """
    ending = _Ending(call)
    _kept.append(ending)
    atexit.register(ending)
    # This process can be a multiprocessing child already. Its own children drop inherited finalizers.
    ending.follow()
    util.register_after_fork(ending, _Ending.follow)
