"""The interface of a backend.

Modules of this package import torch only inside functions. The parent process also uses this package, to read
captured logs, and must never import torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Optional, Protocol

from rocmprobe.checks.tools.context import TestedLibrary
from rocmprobe.knowledge.miopen_log import Reading


class Backend(TestedLibrary, Protocol):
    """A vendor library that computes convolution on one of torch's device types."""

    @property
    def library(self) -> str:
        """Name of the vendor library as its vendor spells it."""

    @property
    def trace_variables(self) -> dict[str, str]:
        """Environment variables that make the library log which implementation (e.g. solver) it runs."""

    def vendor_library_off(self) -> AbstractContextManager[None]:
        """Return a context in which PyTorch uses its own kernels instead of the library."""

    def library_version(self) -> Optional[str]:
        """Return the version of the library according to torch, or None if torch does not report it."""

    def read(self, log: str) -> Reading:
        """Parse a captured ``log`` of the library. The result has the implementation of the last convolution,
        and the failures."""

    def is_fallback(self, implementation: str) -> bool:
        """Return True if ``implementation`` is the library's last resort: correct, but slow."""

    def demands_exactness(self) -> bool:
        """Return True if the library only sums plain products, so that results for integers must be exact.

        Return False if the library can choose transforms (Winograd, FFT) or reduced precision.
        """


@contextmanager
def switched(switches: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set attributes during the block, and restore the old values at the end.

    Each switch is (object, name of the attribute, value).
    """
    before: list[tuple[Any, str, Any]] = []
    try:
        for owner, name, value in switches:
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
