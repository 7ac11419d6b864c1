"""A child forked from the server that has torch imported already."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Union

from rocmprobe.lifetime import die_with_parent
from rocmprobe.worker.main import serve

_DEVICE_NODES = ("/dev/kfd", "/dev/dri/", "/dev/nvidia", "/dev/dxg")


def holds_device(pid: Union[int, str]) -> bool:
    """Whether a process ("self" for this one) has the device node of a GPU open.

    Raises OSError where the process is gone or another user's.
    """
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(descriptor).startswith(_DEVICE_NODES):
                return True
    return False


def forked(commands: Connection, events: Connection, output: Connection, workdir: str) -> None:
    """Entry of a forked child: own session, output captured at the descriptors, then serve.

    With a device open it ends through libc's ``exit``, so that the libraries' own destructors run: a crash
    there is a finding, and multiprocessing's ``os._exit`` would hide it. Without one they only
    give memory back, and take longer over it than a child takes to start (benchmarks/trial_cost.py).
    """
    os.setsid()
    # The server lives as long as any write end of its alive pipe; this copy must not keep it.
    alive = getattr(forkserver._forkserver, "_forkserver_alive_fd", None)
    if alive is not None:
        os.close(alive)
    die_with_parent()
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output.fileno(), 1), (output.fileno(), 2)):
        os.dup2(source, target)
    output.close()
    os.chdir(workdir)
    sys.stdin = os.fdopen(0)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    serve(os.dup(commands.fileno()), os.dup(events.fileno()))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if holds_device("self"):
        ctypes.CDLL(None).exit(0)
    os._exit(0)
