"""Handlers for signals that end a run early but keep its results so far."""

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
    """State of a signal that arrived inside of :func:`delayed_signals`."""

    def __init__(self) -> None:
        self.depth = 0
        self.came = False


_coming = _Pending()


def install_handlers() -> None:
    """Make SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt. Call this in the main thread.

    SIGINT and SIGHUP stay ignored if this process was started with these signals ignored, e.g. by nohup.
    SIGTERM always raises KeyboardInterrupt.
    """
    for number in _ENDING:
        if number == signal.SIGTERM or signal.getsignal(number) in (
            signal.SIG_DFL,
            signal.default_int_handler,
        ):
            signal.signal(number, _came)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Make SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt inside of the ``with`` block."""
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
    """Delay SIGINT, SIGTERM and SIGHUP until the end of the ``with`` block, e.g. to write a file completely.

    If a second signal arrives in the block, KeyboardInterrupt is raised at once.
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
