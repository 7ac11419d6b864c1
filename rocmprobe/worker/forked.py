"""A child forked from the server that has torch imported already."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from rocmprobe.lifetime import die_with_parent
from rocmprobe.worker.main import serve

_DEVICE_NODES = ("/dev/kfd", "/dev/dri/", "/dev/nvidia", "/dev/dxg")


def holds_device() -> bool:
    """Return True if this process has the device node of a GPU open."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(descriptor).startswith(_DEVICE_NODES):
                return True
    return False


def serve_forked(workdir: str, server: int, commands: int, events: int, output: int) -> NoReturn:
    """Serve cases in a child of ``server``, in its own session and with captured output. Then end it.

    If a device is open, the child ends through libc's ``exit``, which runs the destructors of the libraries:
    a crash there is a finding, and ``os._exit`` would hide it. Without a device they only free
    memory, which takes longer than a child takes to start (benchmarks/trial_cost.py).
    """
    code = 1
    try:
        os.setsid()
        die_with_parent(server)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        os.close(output)
        os.chdir(workdir)
        sys.stdout = os.fdopen(1, "w", buffering=1)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        serve(commands, events)
        atexit._run_exitfuncs()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    if code == 0 and holds_device():
        ctypes.CDLL(None).exit(0)
    os._exit(code)
