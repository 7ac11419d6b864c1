"""What every backend answers. Modules here import torch only inside functions: the controller reads
captured logs with a backend and never has torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Optional, Protocol

from rocmprobe.knowledge.miopen_log import Reading


@dataclass
class Meter:
    """Bytes of tensor memory: the peak above what was live when metering began."""

    peak_bytes: int = 0


class Backend(Protocol):
    """One vendor library behind one torch device type."""

    @property
    def name(self) -> str:
        """ "onednn", "cudnn" or "miopen"."""

    @property
    def library(self) -> str:
        """The vendor library's own spelling, for people."""

    @property
    def device_type(self) -> str:
        """torch's device type: "cpu" or "cuda"."""

    @property
    def trace_variables(self) -> dict[str, str]:
        """Variables that make the library name the implementation it runs."""

    def vendor_library_off(self) -> AbstractContextManager[None]:
        """A context in which PyTorch uses its own kernels instead of the library."""

    def library_version(self) -> Optional[str]:
        """The version the running torch reports, or None."""

    def synchronize(self, device: str) -> None:
        """Wait until everything queued on ``device`` is done; errors of queued work surface here."""

    def meter(self, device: str) -> AbstractContextManager[Meter]:
        """A context whose Meter holds the peak when it ends."""

    def fillable_bytes(self, device: str, wanted: int) -> int:
        """How much memory a test may fill without harm to whatever else uses it; ``wanted`` where time
        is what limits it."""

    def memory_limit(self, device: str, above: int) -> Callable[[], AbstractContextManager[None]]:
        """A context factory: inside, what goes ``above`` bytes over what this process holds now is
        refused, as where no memory is left. The limit is gone when the context ends, however it does."""

    def read(self, log: str) -> Reading:
        """Parse a captured ``log``: the last convolution in it, and failures."""

    def is_fallback(self, implementation: str) -> bool:
        """Whether an implementation is the library's last resort: right, but slow."""

    def demands_exactness(self) -> bool:
        """Whether its convolutions sum plain products, so that integer fills must come out equal.

        False where transforms (Winograd, FFT) or reduced precision may be chosen.
        """

    @property
    def rounds_parts(self) -> bool:
        """Whether sums in half precision may be rounded to it part by part, as PyTorch's own kernels do."""
