"""Exceptions that a check raises."""

from __future__ import annotations

from typing import Optional


class DeviceFailure(Exception):
    """Error raised by the device or its libraries. Any other exception of a check is a fault of rocmprobe."""


class NotApplicable(Exception):
    """The check does not apply here. The message gives the reason."""


def out_of_memory(error: Optional[BaseException]) -> bool:
    """Return True if an allocator reports that no memory is left.

    The allocators of PyTorch (GPU and CPU), of Python and of C++ are recognized.
    """
    said = ("out of memory", "can't allocate memory", "std::bad_alloc")
    return isinstance(error, MemoryError) or any(text in str(error) for text in said)
