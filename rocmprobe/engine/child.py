"""Child processes that run cases, started directly or by a fork server that has imported torch."""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.launch import worker_command
from rocmprobe.knowledge.environment import inherited
from rocmprobe.process.processes import descendants, kill_group, kill_same, started
from rocmprobe.text.plain_text import without_controls
from rocmprobe.text.reading import json_line
from rocmprobe.worker.messages import Event, Spec, decode_event, encode

#: Largest number of buffered bytes without a newline. A larger buffer contains no event and is emptied.
_LONGEST_EVENT = 1 << 20
_LOG_BYTES = 16 * 1024
#: Largest number of bytes of a secret that redaction recognises.
_LONGEST_SECRET = 4 * 1024
#: More bytes than fit into a pipe. Reading this many bytes reads everything that was in the pipe.
_PIPE_BYTES = 1 << 20
#: Seconds to wait after SIGKILL. A process that is blocked in a driver never ends.
_UNKILLABLE_AFTER = 10.0
#: Timeout in seconds for a fork by a server that has imported torch.
_FORK_SECONDS = 30.0
_LONGEST_MESSAGE = 1 << 16


def _broken(data: bytes) -> int:
    """Return the length of the incomplete line, or of the incomplete word, at the start of ``data``."""
    begun = data[:_LONGEST_SECRET]
    return next((begun.index(end) + 1 for end in (b"\n", b" ") if end in begun), len(begun))


class Capture:
    """A byte buffer that keeps only the first and the last ``size`` bytes.

    It keeps no incomplete line, because redaction does not recognise a part of an identifier.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def write(self, data: bytes) -> None:
        room = self._size - len(self._head)
        self._head += data[:room]
        self._tail += data[max(0, room) :]
        if len(self._tail) > 2 * self._size:
            self._dropped += len(self._tail) - self._size
            del self._tail[: -self._size]

    def text(self) -> str:
        """Return the buffer as text, without colours and control characters."""
        head, tail = bytes(self._head), bytes(self._tail[-self._size :])
        dropped = self._dropped + len(self._tail) - len(tail)
        gap = b""
        if dropped:
            whole = head[: len(head) - _broken(head[::-1])], tail[_broken(tail) :]
            dropped += len(head) + len(tail) - sum(map(len, whole))
            head, tail = whole
            gap = f"\n[{dropped} bytes left out]\n".encode()
        return without_controls((head + gap + tail).decode("utf-8", "replace"))


class Child:
    """A worker process that sends events.

    If ``spawn`` is False and the fork server is ready within ``seconds``, the server forks the worker.
    """

    def __init__(
        self, environ: Mapping[str, str], workdir: Path, spawn: bool, seconds: float = 120.0
    ) -> None:
        command_reader, self._commands = os.pipe()
        self._events, event_writer = os.pipe()
        self._output, output_writer = os.pipe()
        self.log = Capture(_LOG_BYTES)
        self.since_mark = Capture(_LOG_BYTES)
        self._buffer = b""
        try:
            ends = command_reader, event_writer, output_writer
            server = None if spawn else fork_server(seconds)
            forked = server.fork(*ends, workdir) if server else None
            self.start_method = "fork" if forked else "spawn"
            self._process = forked or _spawned(*ends, environ, workdir)
        finally:
            for descriptor in (command_reader, event_writer, output_writer):
                os.close(descriptor)
        self._selector = selectors.DefaultSelector()
        os.set_blocking(self._commands, False)
        for descriptor in (self._events, self._output):
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Union[Spec, Case], seconds: float = 10.0) -> None:
        """Send ``message`` to the child. Give up if the child has ended or does not read for ``seconds``."""
        data = encode(message)
        with contextlib.suppress(BrokenPipeError):
            while data and select.select([], [self._commands], [], seconds)[1]:
                data = data[os.write(self._commands, data) :]

    def mark(self) -> None:
        """Empty the capture ``since_mark`` before the next case."""
        self.since_mark = Capture(_LOG_BYTES)

    def event(self, seconds: float) -> Optional[Event]:
        """Return the next event, or None after ``seconds``. Raise EOFError if the child has ended."""
        deadline = time.monotonic() + seconds
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                if not line:
                    continue
                event = decode_event(line)
                if event is not None:
                    self._drain()
                    return event
                self.log.write(b"[not an event] " + line[:200].rpartition(b" ")[0] + b"\n")
                continue
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None
            self._pump(min(remaining, 1.0))

    def _pump(self, seconds: float) -> None:
        """Read available data into the buffers. Raise EOFError if the child has ended."""
        for key, _ in self._selector.select(seconds):
            data = _read(key.fd)
            if data is None:
                continue
            if key.fd == self._output:
                if not data:
                    self._selector.unregister(key.fd)
                self._keep(data)
            elif data:
                self._buffer += data
                if b"\n" not in self._buffer and len(self._buffer) > _LONGEST_EVENT:
                    self._buffer = b""
            else:
                self._drain()
                raise EOFError
        if b"\n" in self._buffer or self._process.poll() is None:
            return
        if all(key.fd != self._events for key, _ in self._selector.select(0)):
            # The child has ended, even if a grandchild keeps the pipes open.
            self._drain()
            raise EOFError

    def _drain(self) -> None:
        taken = 0
        while taken < _PIPE_BYTES and (data := _read(self._output)):
            self._keep(data)
            taken += len(data)

    def _keep(self, data: bytes) -> None:
        self.log.write(data)
        self.since_mark.write(data)

    def dump_stacks(self) -> None:
        """Make the child print the stack of every thread into the log."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        time.sleep(0.3)
        self._drain()

    def close(self, seconds: float) -> str:
        """Let the child end, or kill the child after ``seconds``. Return the exit status as in ``exit``."""
        self._close_commands()
        return self.exit(seconds)

    def exit(self, seconds: float) -> str:
        """Wait until the child ends, or kill the child after ``seconds``.

        Return an exit code as text (e.g. "0"), the name of a signal, "killed" or "unkillable".
        """
        below = descendants(self.pid)
        ends = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < ends:
            try:
                self.event(0.05)
            except EOFError:
                time.sleep(0.005)
        if self._process.poll() is None:
            return self.kill()
        status = self._gone()
        kill_same(below)
        return status

    def kill(self, grace: float = 2.0) -> str:
        """Send SIGTERM to the process group, and SIGKILL after ``grace`` seconds.

        Return "killed" or "unkillable".
        """
        # Also kill descendants in another session, which are not in the group.
        below = descendants(self.pid)
        for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, _UNKILLABLE_AFTER)):
            self._signal_group(number)
            ends = time.monotonic() + patience
            while self._process.poll() is None and time.monotonic() < ends:
                time.sleep(0.02)
            if self._process.poll() is not None:
                self._gone()
                kill_same(below)
                return "killed"
        return "unkillable"

    def _gone(self) -> str:
        self._drain()
        code = self._process.poll()
        # Kill the group, not the pid: processes of the group can still exist, but the pid can belong to
        # another process now.
        kill_group(self.pid)
        self._close_commands()
        self._selector.close()
        for descriptor in (self._events, self._output):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        if code is not None and code < 0:
            return signal.Signals(-code).name
        return str(code)

    def _close_commands(self) -> None:
        if self._commands >= 0:
            os.close(self._commands)
            self._commands = -1

    def _signal_group(self, number: int) -> None:
        # Also signal the child itself, because its group can still be missing.
        for send in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(self.pid, number)


def _spawned(
    commands: int, events: int, output: int, environ: Mapping[str, str], workdir: Path
) -> subprocess.Popen[bytes]:
    arguments = str(commands), str(events), str(os.getpid())
    # `python -c` imports from the working directory, so use a directory without Python files.
    return subprocess.Popen(
        worker_command("rocmprobe.worker", *arguments), stdin=subprocess.DEVNULL, stdout=output,
        stderr=output, env=dict(environ), cwd=workdir, pass_fds=(commands, events), start_new_session=True,
    )  # fmt: skip


def _read(descriptor: int) -> Optional[bytes]:
    """Return up to 64 KiB, b"" at the end of the stream, or None if nothing is available."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return None
    except OSError:
        return b""


#: The fork server: [] before its start, [None] if it is unusable.
_server: list[Optional[ForkServer]] = []


def start_fork_server() -> None:
    """Start the fork server in the background."""
    server = _server[0] if _server else None
    if _server and not (server and server.has_ended()):
        return
    if server:
        server.end()
    _server[:] = [ForkServer()]


def fork_server(seconds: float) -> Optional[ForkServer]:
    """Return the fork server, or None if the server is unusable.

    A server is unusable if it opens a device or needs more than ``seconds`` to import torch.
    """
    start_fork_server()
    (server,) = _server
    if server and not server.is_clean(seconds):
        server.end()
        _server[:] = [None]
        return None
    return server


class ForkServer:
    """A process that imports torch once and forks children."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            arguments = (str(theirs.fileno()), str(os.getpid()))
            # `python -c` imports from its working directory, which must not be the user's.
            self._process = subprocess.Popen(
                worker_command("rocmprobe.worker.server", *arguments), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", pass_fds=(theirs.fileno(),),
                env=inherited(os.environ), start_new_session=True,
            )  # fmt: skip
        self.pid = self._process.pid
        self._children: dict[int, ForkedProcess] = {}
        self._clean: Optional[bool] = None
        self._gone = False

    def is_clean(self, seconds: float) -> bool:
        """Return True if the server has imported torch without opening a device."""
        if self._clean is None:
            self._clean = self._message("clean", seconds) is True
        return self._clean

    def fork(self, commands: int, events: int, output: int, workdir: Path) -> Optional[ForkedProcess]:
        """Fork a child with these pipe descriptors and working directory. Return None if this fails."""
        request = json.dumps({"workdir": str(workdir)}).encode()
        try:
            socket.send_fds(self._channel, [request], [commands, events, output])
        except OSError:
            self._gone = True
            return None
        pid = self._message("pid", _FORK_SECONDS)
        if not isinstance(pid, int):
            self.end()
            return None
        child = self._children[pid] = ForkedProcess(self, pid)
        return child

    def _message(self, key: str, seconds: float) -> Any:
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            message = self._receive(left)
            if message is None:
                return None
            if key in message:
                return message[key]
        return None

    def has_ended(self) -> bool:
        """Return True if the server has ended."""
        # Read the last messages of the server, so that no exit code of a child is lost.
        while self._clean is not None and self._receive(0.0) is not None:
            pass
        return self._gone or self._process.poll() is not None

    def end(self) -> None:
        """Kill the server, which also ends its children."""
        self._gone = True
        self._process.kill()
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)

    def _receive(self, seconds: float) -> Optional[dict[str, Any]]:
        if self._gone or not select.select([self._channel], [], [], seconds)[0]:
            return None
        try:
            found = json_line(self._channel.recv(_LONGEST_MESSAGE))
        except OSError:
            found = None
        if not isinstance(found, dict):
            self._gone = True
            return None
        if "exited" in found:
            self._children.pop(found["exited"]).returncode = found["code"]
        return found


class ForkedProcess:
    """A child of a fork server, with part of the interface of ``subprocess.Popen``."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: Optional[int] = None
        self._server = server

    def poll(self) -> Optional[int]:
        """Return the exit code (negative for a signal), or None while the process runs."""
        # If the server has ended, its children were killed, and nobody reported their exit codes.
        if self._server.has_ended() and self.returncode is None and started(self.pid) is None:
            self.returncode = -signal.SIGKILL
        return self.returncode
