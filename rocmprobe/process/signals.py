"""The signals that end a run from outside, and how: in order, with what was gathered so far."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Optional

#: Ctrl-C, what `kill`, `timeout`, service managers and CI runners send, and a terminal that is closed, which
#: Windows has no signal for.
_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class _Coming:
    """What came while a signal was to wait."""

    def __init__(self) -> None:
        self.depth = 0
        self.came = False


_coming = _Coming()


def take_signals() -> None:
    """Let each of them raise KeyboardInterrupt in this thread, which must be the main one.

    What this process was started to ignore stays ignored, as under nohup or in the background of a script,
    but for SIGTERM: a run that nothing but SIGKILL can end helps nobody.
    """
    for number in _ENDING:
        if number == signal.SIGTERM or signal.getsignal(number) in (
            signal.SIG_DFL,
            signal.default_int_handler,
        ):
            signal.signal(number, _came)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """``take_signals`` for as long as this lasts."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    take_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            # None means one that was not set from Python, which Python cannot set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def held() -> Iterator[None]:
    """Let what is written here be written whole: a first signal raises KeyboardInterrupt only at the end. A
    second one does at once."""
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
