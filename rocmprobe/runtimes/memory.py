"""Device memory, with margins that reveal stray writes."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Optional

from rocmprobe.runtimes.calls import CallFailed

if TYPE_CHECKING:
    from rocmprobe.runtimes.hip import Hip

_MARGIN_BYTE = 0xA5


class Buffer:
    """Device memory. As a context manager, it frees the memory at the end of the block.

    ``allocated`` is the address of the first margin.
    """

    def __init__(self, runtime: Hip, allocated: int, size: int, margin: int = 0) -> None:
        self.runtime = runtime
        self.allocated = allocated
        self.address = allocated + margin
        self.size = size
        self.margin = margin
        for start in self._margins():
            runtime.set_bytes(start, _MARGIN_BYTE, margin)

    def _margins(self) -> tuple[int, ...]:
        return (self.allocated, self.address + self.size) if self.margin else ()

    def stray_writes(self) -> int:
        """Return how many bytes of the margins were overwritten."""
        margins = [self.runtime.copy_out(start, self.margin) for start in self._margins()]
        return sum(len(margin) - margin.count(_MARGIN_BYTE) for margin in margins)

    def __enter__(self) -> Buffer:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self.free()
        except CallFailed:
            # If the device is lost, freeing fails, too, but only the first error shows the cause.
            if error is None:
                raise

    def free(self) -> None:
        if self.allocated:
            allocated, self.allocated = self.allocated, 0
            self.runtime.release(allocated)

    def write(self, content: bytes) -> None:
        """Copy ``content`` to the start of the buffer. Raise ValueError if the content is too long."""
        if len(content) > self.size:
            raise ValueError(f"{len(content)} bytes do not fit into a buffer of {self.size}")
        self.runtime.copy_in(self.address, content)

    def read(self) -> bytes:
        """Wait for the work queued on the default stream, then return the content of the buffer."""
        return self.runtime.copy_out(self.address, self.size)

    def fill(self, byte: int) -> None:
        self.runtime.set_bytes(self.address, byte, self.size)
