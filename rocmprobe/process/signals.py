"""Handlers for signals that end a run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Optional

#: SIGINT is sent by Ctrl-C, SIGTERM by `kill`, `timeout`, service managers and CI runners, and SIGHUP by a
#: closed terminal. Windows has no SIGHUP.
_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class _Pending:
    def __init__(self) -> None:
        self.depth = 0
        self.came = False


_coming = _Pending()


def install_handlers() -> None:
    """Make SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt. Call this in the main thread."""
    for number in _ENDING:
        # Keep SIGINT and SIGHUP ignored if they were ignored at the start, e.g. by nohup.
        if number == signal.SIGTERM or signal.getsignal(number) in (
            signal.SIG_DFL,
            signal.default_int_handler,
        ):
            signal.signal(number, _came)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Make SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt in the ``with`` block."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    install_handlers()
    try:
        yield
    finally:
        for number, handler in before.items():
            # None stands for a handler that Python did not set and cannot restore.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def delayed_signals() -> Iterator[None]:
    """Delay SIGINT, SIGTERM and SIGHUP until the end of the ``with`` block.

    A second signal in the block raises KeyboardInterrupt at once.
    """
    _coming.depth += 1
    try:
        yield
    finally:
        _coming.depth -= 1
        came, _coming.came = _coming.came, _coming.came and _coming.depth > 0
    if came and not _coming.depth:
        raise KeyboardInterrupt


def _came(number: int, frame: Optional[FrameType]) -> None:
    if _coming.depth and not _coming.came:
        _coming.came = True
        return
    raise KeyboardInterrupt
