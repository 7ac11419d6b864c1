"""The controller's side of the fork servers (``worker/server.py``), one for each interpreter."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Optional

from rocmprobe.engine.child_environment import kept
from rocmprobe.engine.interpreters import Launch
from rocmprobe.process.processes import started
from rocmprobe.text.reading import json_line

#: Seconds that a ready server gets for a fork.
_FORK_SECONDS = 30.0
_LONGEST = 1 << 16

#: By interpreter. None stands for a server that failed to start.
_servers: dict[str, Optional[ForkServer]] = {}


def fork_server(launch: Launch, seconds: float) -> Optional[ForkServer]:
    """Return the server of an interpreter, started if necessary, or None if the interpreter has none.

    A server that takes more than ``seconds`` to import torch, or that opens a device, is killed and never
    started again. A server that ended later is replaced.
    """
    server = _servers.get(launch.python)
    if launch.python in _servers and not (server and server.has_ended()):
        return server
    if server:
        server.end()
    _servers[launch.python] = server = _started(launch, seconds)
    return server


def _started(launch: Launch, seconds: float) -> Optional[ForkServer]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        arguments = (str(theirs.fileno()), str(os.getpid()))
        # `python -c` imports from its working directory, which must not be the user's.
        process = subprocess.Popen(
            launch.command("rocmprobe.worker.server", *arguments), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", pass_fds=(theirs.fileno(),),
            env={**kept(os.environ), **launch.variables}, start_new_session=True,
        )  # fmt: skip
    server = ForkServer(process, ours)
    if server.message("clean", seconds) is True:
        return server
    server.end()
    return None


class ForkServer:
    """A server that has imported torch, and the children that it forked."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket) -> None:
        self.pid = process.pid
        self._process = process
        self._channel = channel
        self._children: dict[int, ForkedProcess] = {}
        self._gone = False

    def fork(self, commands: int, events: int, output: int, workdir: Path) -> Optional[ForkedProcess]:
        """Return a child that works in ``workdir`` with these descriptors, or None if the server is gone."""
        request = json.dumps({"workdir": str(workdir)}).encode()
        try:
            socket.send_fds(self._channel, [request], [commands, events, output])
        except OSError:
            self._gone = True
            return None
        pid = self.message("pid", _FORK_SECONDS)
        if not isinstance(pid, int):
            self.end()
            return None
        child = self._children[pid] = ForkedProcess(self, pid)
        return child

    def message(self, key: str, seconds: float) -> Any:
        """Return the server's next value of ``key``, or None if none arrives within ``seconds``."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            message = self._receive(left)
            if message is None:
                return None
            if key in message:
                return message[key]
        return None

    def has_ended(self) -> bool:
        """Return True if the server is gone. Record the exit codes that it has reported."""
        while self._receive(0.0) is not None:
            pass
        return self._gone or self._process.poll() is not None

    def end(self) -> None:
        """Kill the server. Its children end with it."""
        self._gone = True
        self._process.kill()
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)

    def _receive(self, seconds: float) -> Optional[dict[str, Any]]:
        """Return the next message, or None if the server sends none within ``seconds`` or is gone."""
        if self._gone or not select.select([self._channel], [], [], seconds)[0]:
            return None
        try:
            found = json_line(self._channel.recv(_LONGEST))
        except OSError:
            found = None
        if not isinstance(found, dict):
            self._gone = True
            return None
        if "exited" in found:
            self._children.pop(found["exited"]).returncode = found["code"]
        return found


class ForkedProcess:
    """A child of a fork server, with the part of Popen's interface that ``Child`` uses."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: Optional[int] = None
        self._server = server

    def poll(self) -> Optional[int]:
        """Return the exit code, a signal as a negative number, or None while the process lives."""
        # The server sends no exit code after its own end, which kills the child.
        if self._server.has_ended() and self.returncode is None and started(self.pid) is None:
            self.returncode = -signal.SIGKILL
        return self.returncode
