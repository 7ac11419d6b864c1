"""The controller's side of the fork servers in other interpreters (``worker/server.py``), one for each."""

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

#: Seconds that a server, which is ready, has for a fork.
_FORK_SECONDS = 30.0
_LONGEST = 1 << 16

#: By interpreter; None where it has none that may be forked.
_servers: dict[str, Optional[ForkServer]] = {}


def fork_server(launch: Launch, seconds: float) -> Optional[ForkServer]:
    """The server of an interpreter, started if need be, which imports torch; None where it did not come up
    within ``seconds``, has opened a device, or is gone."""
    if launch.python not in _servers:
        _servers[launch.python] = _started(launch, seconds)
    server = _servers[launch.python]
    return server if server and not server.gone else None


def _started(launch: Launch, seconds: float) -> Optional[ForkServer]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        arguments = (str(theirs.fileno()), str(os.getpid()))
        # `python -c` imports from its working directory: never the user's.
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
        self.gone = False

    def fork(self, commands: int, events: int, output: int, workdir: Path) -> Optional[int]:
        """The number of a child that works in ``workdir`` and has these descriptors; None where the server is
        gone."""
        request = json.dumps({"workdir": str(workdir)}).encode()
        try:
            socket.send_fds(self._channel, [request], [commands, events, output])
        except OSError:
            self.gone = True
            return None
        pid = self.message("pid", _FORK_SECONDS)
        if pid is None:
            self.end()
        return pid if isinstance(pid, int) else None

    def exit_code(self, pid: int) -> Optional[int]:
        """How a child ended: its code, or a signal as a negative number; None while it lives. Those of a
        server that is gone went with it."""
        while pid not in self._ended and self._receive(0.0) is not None:
            pass
        return self._ended.get(pid, -9 if self.gone and started(pid) is None else None)

    def message(self, key: str, seconds: float) -> Any:
        """What the server says under ``key`` within ``seconds``; None where it says nothing."""
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
        self.gone = True
        kill_same({self._process.pid: started(self._process.pid)})
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)

    def _receive(self, seconds: float) -> Optional[dict[str, Any]]:
        """The next message; None where none comes within ``seconds``, or the server is gone."""
        if self.gone or not select.select([self._channel], [], [], seconds)[0]:
            return None
        try:
            found = json_line(self._channel.recv(_LONGEST))
        except OSError:
            found = None
        if not isinstance(found, dict):
            self.gone = True
            return None
        if "pid" in found:
            # An earlier child may have had the number.
            self._ended.pop(found["pid"], None)
        if "exited" in found:
            self._ended[found["exited"]] = found["code"]
        return found
