"""Device locks: measurements have a device for themselves, all else shares it.

``flock`` on files below the user's runtime folder, so they hold across xdist workers and across
runs, and vanish with the process that holds them. Plain flock lets a stream of sharers starve the
exclusive waiter; everyone therefore passes a turnstile, which the exclusive one holds while it waits.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


@contextmanager
def device_lock(device: str, exclusive: bool) -> Iterator[None]:
    """Hold ``device`` shared, or exclusively until the context ends. Waits as long as it takes."""
    name = re.sub(r"\W", "_", device)
    with _held(f"{name}.turnstile", fcntl.LOCK_EX) as turnstile:
        mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        with _held(name, mode):
            fcntl.flock(turnstile, fcntl.LOCK_UN)
            yield


@contextmanager
def _held(name: str, mode: int) -> Iterator[int]:
    # Not inherited by children: a leaked one would keep the lock alive.
    descriptor = os.open(lock_folder() / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, mode)
        yield descriptor
    finally:
        os.close(descriptor)
