"""Exception for kernels that cannot be used here. Callers must catch it and continue without the kernels."""

from __future__ import annotations


class KernelsUnavailable(Exception):
    """The kernels cannot or must not be used here. ``log`` is the log of the compiler, or ""."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log
