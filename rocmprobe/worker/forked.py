"""A child forked from the server that has torch imported already."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from multiprocessing import forkserver
from multiprocessing.connection import Connection

from rocmprobe.worker.main import die_with_parent, serve


def forked(commands: Connection, events: Connection, output: Connection, workdir: str) -> None:
    """Entry of a forked child: own session, output captured at the descriptors, then serve.

    Ends through libc's ``exit``, so that the libraries' own destructors run: a crash there is a
    finding, and multiprocessing's ``os._exit`` would hide it.
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
    ctypes.CDLL(None).exit(0)
