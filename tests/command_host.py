"""The command line in a process that stays: what each run would import again is imported once.

Most of a small run is Python starting, pytest being imported, and the fork server importing torch. A test
that is about what a run finds, and not about its process, asks a host, which runs the same command line for
one after the other. Run as a program this file is the host: it reads a line of JSON for each run (arguments,
environment, working directory, files for what is printed), and writes a line with the exit code.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Host:
    """One process; it ends with this one."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        atexit.register(self._end)

    def ask(
        self, arguments: list[str], environ: Mapping[str, str], cwd: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line with ``arguments`` in ``cwd``. Raises EOFError where the host dies over it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory(prefix="command-host-") as folder:
            paths = [os.path.join(folder, name) for name in ("stdout", "stderr")]
            self._process.stdin.write(json.dumps([arguments, dict(environ), cwd, *paths]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            printed = [Path(path).read_text("utf-8") for path in paths]
        if not answer:
            raise EOFError(f"exit code {self._process.wait()}: {arguments}\n{printed[1]}")
        return subprocess.CompletedProcess(arguments, json.loads(answer), *printed)

    def _end(self) -> None:
        self._process.communicate(timeout=60)


_free: dict[str, list[Host]] = {}
_lock = threading.Lock()


def ask(
    arguments: list[str], environ: Mapping[str, str], cwd: str, python: str
) -> subprocess.CompletedProcess[str]:
    """Have a host, run by ``python``, run ``rocmprobe`` with ``arguments`` and ``environ`` in ``cwd``."""
    with _lock:
        free = _free.setdefault(python, [])
        host = free.pop() if free else None
    host = host or Host(python)
    done = host.ask(arguments, environ, cwd)
    # One that died is not put back.
    with _lock:
        free.append(host)
    return done


def _serve() -> None:
    questions, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    # A command that reads its standard input finds nothing there.
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    home = os.getcwd()
    for line in questions:
        arguments, environ, cwd, *paths = json.loads(line)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environ)
        for number, path in enumerate(paths, 1):
            with open(path, "wb") as stream:
                os.dup2(stream.fileno(), number)
        code = _called(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        os.chdir(home)
        answers.write(f"{json.dumps(code)}\n")
        answers.flush()


def _called(arguments: list[str]) -> Any:
    from rocmprobe import cli

    try:
        cli.main(arguments, prog_name="rocmprobe")
    except SystemExit as stop:
        return stop.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    # The tests' helpers lie beside this file; rocmprobe must find none of them.
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    _serve()
