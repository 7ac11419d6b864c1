"""Exception that says that the kernels cannot be used here. Callers must catch it and continue without the
kernels."""

from __future__ import annotations


class KernelsUnavailable(Exception):
    """A kernel cannot be compiled, loaded or launched here. ``log`` is the log of the compiler or loader."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log
