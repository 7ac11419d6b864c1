"""Exception for kernels that cannot be used on this device."""

from __future__ import annotations


class KernelsUnavailable(Exception):
    """The kernels cannot or must not be used. ``log`` is the log of the compiler, or ""."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log
