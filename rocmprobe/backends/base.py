"""The interface of a backend.

Modules of this package import torch only inside functions. The parent process also uses this package, and
must never import torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Optional, Protocol

from rocmprobe.checks.tools.context import TestedLibrary
from rocmprobe.knowledge.miopen_log import Reading


class Backend(TestedLibrary, Protocol):
    """A vendor library that computes convolution on one of torch's device types."""

    @property
    def library(self) -> str:
        """Name of the library in the vendor's spelling."""

    @property
    def trace_variables(self) -> dict[str, str]:
        """Environment variables that make the library log the implementation (e.g. solver) that runs."""

    def vendor_library_off(self) -> AbstractContextManager[None]:
        """Return a context in which PyTorch uses its own kernels instead of the library."""

    def library_version(self) -> Optional[str]:
        """Return the library's version, or None if torch does not report it."""

    def read(self, log: str) -> Reading:
        """Parse a captured log, and return the last convolution's implementation and all failures."""

    def is_fallback(self, implementation: str) -> bool:
        """Return True if ``implementation`` is the library's slow last resort."""

    def demands_exactness(self) -> bool:
        """Return True if results for integers must be exact.

        Results can be inexact if the library can choose transforms (Winograd, FFT) or reduced precision. The
        environment variables of the setting must be set.
        """


#: (object, name of an attribute, value)
Switch = tuple[object, str, object]


@contextmanager
def switched(switches: Iterable[Switch]) -> Iterator[None]:
    """Set attributes in a ``with`` block, and restore the old values at the end."""
    before: list[Switch] = []
    try:
        for owner, name, value in switches:
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
