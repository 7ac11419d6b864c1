"""The fork server: it imports torch once, so that a child starts in milliseconds."""

from __future__ import annotations

import atexit
import contextlib
import functools
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Optional

from rocmprobe.process.guardian import guardian
from rocmprobe.process.leftovers import own_folder
from rocmprobe.run.child_environment import kept

#: The path of a Unix socket has 107 characters at most (unix(7)); its name in the folder takes 18.
_LONGEST_FOLDER = 107 - len("/listener-xxxxxxxx")


def forked(target: Callable[..., Any], args: tuple[Any, ...], workdir: Path, seconds: float) -> Optional[Any]:
    """A process forked from the server, or None where it must be started from scratch.

    The server is started if need be, which imports torch; one that takes more than ``seconds`` is
    given up.
    """
    try:
        with _kept_environment(), _bare_main(), _inside(workdir), _given_up_after(seconds):
            if not _is_clean():
                return None
            process = multiprocessing.get_context("forkserver").Process(target=target, args=args, daemon=True)
            process.start()
            return process
    except (OSError, EOFError):
        return None


@functools.lru_cache(maxsize=1)
def folder() -> Path:
    """Where multiprocessing has the server's socket; removed when this process ends by itself."""
    made = own_folder(_LONGEST_FOLDER)
    guardian().remove(made)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    # One of its own making would not say whose it was, if nothing could clean up after this process.
    multiprocessing.current_process()._config["tempdir"] = str(made)  # type: ignore[attr-defined]
    return made


@functools.lru_cache(maxsize=1)
def _is_clean() -> bool:
    """Start the server; True if importing torch has worked out and has touched no device.

    A server that opened a device must not be forked: its children would share that context.
    """
    from rocmprobe.worker.forked import holds_device

    server: Any = forkserver._forkserver
    folder()
    multiprocessing.set_forkserver_preload(["rocmprobe.worker.preload"])
    try:
        forkserver.ensure_running()
        # The server takes requests once its imports are done; this one waits for that.
        first = multiprocessing.get_context("forkserver").Process(target=os.getpid)
        first.start()
        first.join()
        return first.exitcode == 0 and not holds_device(server._forkserver_pid)
    except (OSError, EOFError):
        return False


@contextlib.contextmanager
def _given_up_after(seconds: float) -> Iterator[None]:
    """Kill a server that hangs in an import: whoever waits for its answer gets an EOFError then."""

    def give_up() -> None:
        server: Any = forkserver._forkserver
        if server._forkserver_pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server._forkserver_pid, signal.SIGKILL)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """``python -c``, which the server is, imports from its working directory: never the user's, where
    a random.py or a checkout of torch may lie."""
    before = os.open(".", os.O_PATH | os.O_CLOEXEC)
    os.chdir(folder)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


@contextlib.contextmanager
def _kept_environment() -> Iterator[None]:
    """The server takes its environment from this process, and may have to be started at any fork."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(kept(before))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _bare_main() -> Iterator[None]:
    """multiprocessing imports the parent's main module again in every child; a trial needs none of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
