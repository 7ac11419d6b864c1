"""Exceptions that a check raises."""

from __future__ import annotations

from typing import Optional


class DeviceFailure(Exception):
    """The device or its libraries raised an error."""


class NotApplicable(Exception):
    """The check cannot run with this device, torch or problem."""


def out_of_memory(error: Optional[BaseException]) -> bool:
    """Return True if ``error`` reports lack of memory on a GPU or CPU."""
    said = ("out of memory", "can't allocate memory", "std::bad_alloc")
    return isinstance(error, MemoryError) or any(text in str(error) for text in said)
