"""What a check raises, and what the device or its libraries do."""

from __future__ import annotations

from typing import Optional


class DeviceFailure(Exception):
    """The device or its libraries raised; anything else that a check raises is rocmprobe's own fault."""


class NotApplicable(Exception):
    """The question has no meaning here; the message says why."""


def out_of_memory(error: Optional[BaseException]) -> bool:
    """Whether an allocator says that it has no memory left: PyTorch's on a GPU or a CPU, Python's, C++'s."""
    said = ("out of memory", "can't allocate memory", "std::bad_alloc")
    return isinstance(error, MemoryError) or any(text in str(error) for text in said)
