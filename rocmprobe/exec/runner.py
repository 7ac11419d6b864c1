"""A runner for a program as a child process that behaves as if the program had replaced rocmprobe.

The program stays in rocmprobe's process group, so a terminal and a shell control both at once. rocmprobe
forwards each signal that was sent to rocmprobe alone, stops when the program stops, and ends as it ends.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Optional

from rocmprobe.exec.command import cannot_run
from rocmprobe.lifetime import die_with_parent

#: Maximum number of bytes of the program's stderr that are copied at once.
_PIECE = 65_536


def run(
    program: str,
    command: Sequence[str],
    environ: Mapping[str, str],
    errors: Optional[Callable[[bytes], None]] = None,
) -> int:
    """Run ``program``. Return the exit code, or minus the number of the signal that ended the program.

    If ``errors`` is given, the program's stderr is a pipe. Each piece is passed to ``errors`` and copied to
    stderr. Raises BadInput if the system cannot start the program.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    # If SIGCHLD is ignored, the kernel discards exit codes.
    children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    parent = os.getpid()

    def prepare() -> None:
        die_with_parent(parent)
        signal.signal(signal.SIGCHLD, children)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    with _Witness() as witness:
        try:
            process = subprocess.Popen(
                list(command), executable=program, env=dict(environ), close_fds=False,
                preexec_fn=prepare,  # noqa: PLW1509 - there is no thread yet
                stderr=subprocess.PIPE if errors else None,
            )  # fmt: skip
        except OSError as error:
            raise cannot_run(command, error) from error
        _release_descriptors()
        with _copied_stderr(process, errors):
            while process.poll() is None:
                _handle(signal.sigwaitinfo(signal.valid_signals()).si_signo, process, witness)
    # Discard signals that the program got, too, or that came too late to be forwarded.
    while signal.sigtimedwait(signal.valid_signals(), 0):
        pass
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return process.returncode


def exit_like(code: int) -> int:
    """Return ``code``, or end this process by the signal -``code`` that ended the program.

    Signals do not end the first process of a container. Then return the exit code of a shell.
    """
    if code < 0:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        # The program has already dumped its core.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    return code if code >= 0 else 128 - code


class _Witness:
    """A process in rocmprobe's group that shows which signals were sent to the whole group.

    The witness blocks all signals, so those that it got are pending. The kernel signals the youngest process
    of a group first. So if rocmprobe has a signal of the group, the witness has it, too.
    """

    def __enter__(self) -> _Witness:
        questions, self._question = os.pipe()
        self._answer, answers = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            for descriptor in (self._question, self._answer):
                os.close(descriptor)
            _release_descriptors()
            while number := os.read(questions, 1):
                os.write(answers, bytes([signal.sigtimedwait(set(number), 0) is not None]))
            os._exit(0)
        for descriptor in (questions, answers):
            os.close(descriptor)
        return self

    def got(self, number: int) -> bool:
        """Return True if the group got the signal since the last call for this signal."""
        # Without the witness, a signal to the group looks like a signal to this process.
        with suppress(BrokenPipeError):
            os.write(self._question, bytes([number]))
            return os.read(self._answer, 1) == b"\1"
        return False

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _release_descriptors() -> None:
    """Close the caller's descriptors except stderr, so that the program decides how long they are open."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    with suppress(FileNotFoundError):
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            # Python opens files that are not inheritable, so the others are the caller's.
            with suppress(OSError):
                if descriptor > 2 and os.get_inheritable(descriptor):
                    os.close(descriptor)


def _handle(number: int, process: subprocess.Popen[bytes], witness: _Witness) -> None:
    """Forward a signal, or stop with the program."""
    by_group = witness.got(number)
    if number == signal.SIGCHLD:
        # waitid raises this exception if the program has ended.
        with suppress(ChildProcessError):
            if stopped := os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG):
                _stop_with(stopped.si_status, witness)
        return
    # A process that leads its group cannot leave it. Without rocmprobe, this would be the program.
    left = os.getpgid(process.pid) != os.getpgrp() == os.getpid()
    if left or not by_group:
        process.send_signal(number)


def _stop_with(number: int, witness: _Witness) -> None:
    """Stop this process by the signal that stopped the program, so that a shell regains its terminal."""
    if number == signal.SIGSTOP:
        # A tool can stop and continue the program alone, so stop only where a shell can continue the job.
        if _in_foreground():
            os.kill(os.getpid(), number)
        return
    witness.got(number)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})


def _in_foreground() -> bool:
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def _copied_stderr(
    process: subprocess.Popen[bytes], errors: Optional[Callable[[bytes], None]]
) -> Iterator[None]:
    """Copy the program's stderr during the ``with`` block, which ends when the program ends.

    If a daemon of the program still has the stream open then, a process in the background copies the rest.
    """
    stream = process.stderr
    if errors is None or stream is None:
        yield
        return
    source = stream.fileno()
    ended, end = os.pipe()

    def copy() -> None:
        for piece in _pieces(source, ended):
            errors(piece)
            if not _print(piece):
                # Nobody reads stderr, and the program learns this from its own pipe.
                stream.close()
                return

    thread = threading.Thread(target=copy)
    thread.start()
    yield
    os.close(end)
    thread.join()
    if stream.closed:
        return
    rest = select.poll()
    rest.register(source, select.POLLIN)
    if rest.poll(0) != [(source, select.POLLHUP)] and os.fork() == 0:
        os.setsid()
        while (piece := os.read(source, _PIECE)) and _print(piece):
            pass
        os._exit(0)


def _pieces(source: int, ended: int) -> Iterator[bytes]:
    """Yield the data from ``source``. After ``ended`` closes, yield only what was written before."""
    while ended not in select.select([source, ended], [], [])[0]:
        piece = os.read(source, _PIECE)
        if not piece:
            return
        yield piece
    left = int.from_bytes(fcntl.ioctl(source, termios.FIONREAD, bytes(4)), sys.byteorder)
    while left > 0:
        piece = os.read(source, min(left, _PIECE))
        left -= len(piece)
        yield piece


def _print(piece: bytes) -> bool:
    """Write ``piece`` to stderr. Return False if nobody reads stderr."""
    try:
        while piece:
            piece = piece[os.write(2, piece) :]
    except BrokenPipeError:
        return False
    except OSError:
        # For example, the disk is full. The program must not fail because of this.
        pass
    return True
