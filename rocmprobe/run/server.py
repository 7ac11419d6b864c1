"""The fork servers, as the controller sees them: one for each interpreter (``worker/server.py``)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Optional

from rocmprobe.process.processes import kill_same, started
from rocmprobe.run.child_environment import kept
from rocmprobe.run.interpreters import Launch
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
    if launch.python not in _servers or (server and server.has_ended()):
        server = _servers[launch.python] = _started(launch, seconds)
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
        self._process = process
        self._channel = channel
        self._ended: dict[int, int] = {}
        self._gone = False

    @property
    def pid(self) -> int:
        return self._process.pid

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
        return ForkedProcess(self, pid)

    def exit_code(self, pid: int) -> Optional[int]:
        """Return a child's exit code, or None while it lives. A child ends with its server."""
        while pid not in self._ended and self._receive(0.0) is not None:
            pass
        return self._ended.get(pid, -9 if self._gone and started(pid) is None else None)

    def has_ended(self) -> bool:
        return self._gone or self._process.poll() is not None

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

    def end(self) -> None:
        """Kill the server; its children end with it."""
        self._gone = True
        kill_same({self._process.pid: started(self._process.pid)})
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
        if "pid" in found:
            # An earlier child may have had the same number.
            self._ended.pop(found["pid"], None)
        if "exited" in found:
            self._ended[found["exited"]] = found["code"]
        return found


class ForkedProcess:
    """A child of a fork server, with the part of Popen's interface that ``Child`` uses."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid

    def poll(self) -> Optional[int]:
        """Return the exit code, a signal as a negative number, or None while the process lives."""
        return self._server.exit_code(self.pid)
