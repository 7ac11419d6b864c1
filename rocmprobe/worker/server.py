"""Fork server: ``python -m rocmprobe.worker.server SOCKET_FD PARENT_PID``.

The server imports torch once and forks a child for each request. Messages are JSON:

- ``{"clean": BOOL}``: first message of the server, true if the server can be forked
- ``{"workdir": PATH}``, with descriptors for commands, events and output: request for a child
- ``{"pid": PID}``: reply to a request
- ``{"exited": PID, "code": CODE}``: a child has ended
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from rocmprobe.checks import CHECKS
from rocmprobe.lifetime import die_with_parent
from rocmprobe.worker.main import import_torch, serve

_DEVICE_NODES = ("/dev/kfd", "/dev/dri/", "/dev/nvidia", "/dev/dxg")
#: Maximum number of bytes of a request, which contains only a path.
_LONGEST = 1 << 16


def serve_forks(channel: socket.socket) -> None:
    """Fork a child for each request until the controller closes ``channel``."""
    server = os.getpid()
    wakes, wake = os.pipe()
    for end in (wakes, wake):
        os.set_blocking(end, False)
    # Set a handler, because only a handled signal writes to the wakeup descriptor.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    watched: list[Any] = [channel, wakes]
    while True:
        readable, _, _ = select.select(watched, [], [])
        if wakes in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(wakes, _LONGEST)
            _report_ended(channel)
        if channel in readable:
            message, descriptors, _, _ = socket.recv_fds(channel, _LONGEST, 3)
            if not message:
                return
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for end in (wakes, wake, channel.detach()):
                    os.close(end)
                _become_child(server, json.loads(message)["workdir"], *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            _send(channel, pid=pid)


def _become_child(server: int, workdir: str, commands: int, events: int, output: int) -> NoReturn:
    """Run cases in a forked child with captured output, then exit."""
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
        # Run exit functions and destructors to detect crashes in them. Without a device, skip both to save
        # time (benchmarks/trial_cost.py).
        if _holds_device():
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            ctypes.CDLL(None).exit(0)
        sys.stdout.flush()
        sys.stderr.flush()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def _report_ended(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _send(channel, exited=pid, code=os.waitstatus_to_exitcode(status))


def _send(channel: socket.socket, **message: Any) -> None:
    # If the controller has ended, the next read will end this process.
    with contextlib.suppress(BrokenPipeError):
        channel.send(json.dumps(message).encode())


def _import_for_children() -> None:
    # A broken torch must not end the server. A child imports torch again and reports why the import fails.
    with contextlib.suppress(Exception):
        import_torch()
        importlib.import_module("rocmprobe.worker.torch_driver")
    # The first use loads all checks, so that no child has to.
    tuple(CHECKS)


def _holds_device() -> bool:
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(descriptor).startswith(_DEVICE_NODES):
                return True
    return False


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as own:
        _import_for_children()
        # A process with an open device must not be forked, because its children would share the device
        # context.
        _send(own, clean=not _holds_device())
        serve_forks(own)
