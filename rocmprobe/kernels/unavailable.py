"""Exception for a kernel that cannot be used here: a result that must never end a program."""

from __future__ import annotations


class KernelsUnavailable(Exception):
    """A kernel cannot be compiled, loaded or launched here. ``log`` is the log of a compiler or loader."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log
