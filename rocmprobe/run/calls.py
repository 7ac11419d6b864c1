"""The calls of one try into the libraries, as a child of the driver ``capi`` reports them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

#: A try makes some fifty; a library that calls itself again and again does not fill the results.
_MOST = 400


class Calls:
    """Each call with its status, in order; those that follow each other and are alike are one. What is called
    after ``end``, to see whether the device still answers, is not of the try and reported only where it does
    not return."""

    def __init__(self) -> None:
        self._done: list[tuple[str, int]] = []
        self._running: Optional[str] = None
        self._left_out = 0
        self._ended = False

    def end(self) -> None:
        """The try has its answer."""
        self._ended = True

    def add(self, event: Mapping[str, Any]) -> None:
        """A call that starts (``number`` is None) or has returned."""
        function, number = str(event["function"]), event["number"]
        if number is None:
            self._running = function
            return
        self._running = None
        if self._ended:
            return
        text = f"{function}: {event['name']} ({number})"
        if self._done and self._done[-1][0] == text:
            self._done[-1] = (text, self._done[-1][1] + 1)
        elif len(self._done) < _MOST:
            self._done.append((text, 1))
        else:
            self._left_out += 1

    @property
    def last(self) -> Optional[str]:
        """The function that runs, else the last call that returned, with its status."""
        return self._running or (self._done[-1][0] if self._done else None)

    @property
    def where(self) -> str:
        """The function that runs, for the end of a sentence, or nothing."""
        return f", in {self._running}" if self._running else ""

    def as_lines(self) -> tuple[str, ...]:
        """For ``Outcome.calls``."""
        lines = [text if count == 1 else f"{text}, {count} times" for text, count in self._done]
        if self._left_out:
            lines.append(f"[{self._left_out} calls left out]")
        if self._running:
            lines.append(f"{self._running}: did not return")
        return tuple(lines)
