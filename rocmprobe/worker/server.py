"""A fork server in another interpreter: ``python -m rocmprobe.worker.server SOCKET_FD PARENT_PID``.

It imports torch once, and then forks a child for each request. multiprocessing has such a server for its own
interpreter alone. Messages are JSON on a socket that keeps their borders. It says first whether it may be
forked; a request brings the child's working directory and three descriptors (commands, events, output), the
answer is its ``pid``, and how a child ended follows as ``exited`` and ``code``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from rocmprobe.lifetime import die_with_parent
from rocmprobe.worker.forked import forked, holds_device

#: A request is a path.
_LONGEST = 1 << 16


def serve_forks(channel: socket.socket) -> None:
    """Fork a child for each request on ``channel`` until it is closed."""
    wakes, wake = os.pipe()
    for end in (wakes, wake):
        os.set_blocking(end, False)
    # A handler has to be there for the wake-up.
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
                _become_child(json.loads(message)["workdir"], descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            _send(channel, pid=pid)


def _become_child(workdir: str, descriptors: list[int]) -> None:
    commands, events, output = descriptors
    code = 1
    try:
        forked(
            Connection(commands, writable=False),
            Connection(events, readable=False),
            Connection(output, readable=False),
            workdir,
        )
    except SystemExit:
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
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
    # Its controller may be gone; then this process ends, too.
    with contextlib.suppress(BrokenPipeError):
        channel.send(json.dumps(message).encode())


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    with socket.socket(fileno=int(sys.argv[1])) as own:
        import rocmprobe.worker.preload  # noqa: F401 - what it imports is the purpose

        _send(own, clean=not holds_device("self"))
        serve_forks(own)
