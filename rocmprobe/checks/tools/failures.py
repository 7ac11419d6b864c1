"""Exceptions that a check raises."""

from __future__ import annotations

from typing import Optional


class DeviceFailure(Exception):
    """The device or its libraries raised an error.

    Any other exception in a check, except NotApplicable, is a fault of rocmprobe.
    """


class NotApplicable(Exception):
    """The check cannot run with this device, torch or problem."""


def out_of_memory(error: Optional[BaseException]) -> bool:
    """Return True if ``error`` says that no memory is left, in PyTorch (GPU or CPU), Python or C++."""
    said = ("out of memory", "can't allocate memory", "std::bad_alloc")
    return isinstance(error, MemoryError) or any(text in str(error) for text in said)
