"""What a child prints, kept within bounds: the head, the tail, and the size of what is between."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


class Capture:
    """A byte sink that keeps the first and the last ``size`` bytes."""

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
        """As text: what is not UTF-8 replaced, colours and control characters removed."""
        tail = bytes(self._tail[-self._size :])
        dropped = self._dropped + len(self._tail) - len(tail)
        gap = f"\n[{dropped} bytes left out]\n".encode() if dropped else b""
        return _CONTROL.sub("", (bytes(self._head) + gap + tail).decode("utf-8", "replace"))
