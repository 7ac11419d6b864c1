"""Handlers for the signals that end a run early but keep its results so far."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Optional

#: SIGINT comes from Ctrl-C. SIGTERM comes from `kill`, `timeout`, service managers and CI runners. SIGHUP
#: comes from a closed terminal, but does not exist on Windows.
_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class _Coming:
    """State of a signal that arrived while a block delayed signals."""

    def __init__(self) -> None:
        self.depth = 0
        self.came = False


_coming = _Coming()


def take_signals() -> None:
    """Make SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt. Call this function in the main thread.

    A signal that the parent made this process ignore, as nohup does, stays ignored. SIGTERM is always
    handled, so that a run never needs SIGKILL.
    """
    for number in _ENDING:
        if number == signal.SIGTERM or signal.getsignal(number) in (
            signal.SIG_DFL,
            signal.default_int_handler,
        ):
            signal.signal(number, _came)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Make SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt within the block. Restore the handlers after
    the block."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    take_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            # None stands for a handler that Python did not set and cannot restore.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def held() -> Iterator[None]:
    """Delay the first SIGINT, SIGTERM or SIGHUP to the end of the block, so that files are written
    completely.

    A second signal raises KeyboardInterrupt at once.
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
