"""Why a kernel cannot be used here: an outcome, never a reason to end a program."""

from __future__ import annotations


class KernelsUnavailable(Exception):
    """A kernel cannot be compiled, loaded or launched here. ``log`` is what a compiler or loader said."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log
