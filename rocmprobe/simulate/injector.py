"""The interface through which a simulated machine changes a worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Optional

from rocmprobe.backends import Backend
from rocmprobe.backends.direct.libraries import LIBRARIES
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.compiler import Compiler
from rocmprobe.knowledge.settings import Versions
from rocmprobe.runtimes.loaded import mapped


class Injector:
    """Hooks of a worker, which a simulated machine overrides."""

    def enter(self, phase: str, case: Optional[Case]) -> None:
        """Begin the phase "import", "prepare" or "teardown"."""

    def report(self, phase: str, case: Case) -> None:
        """Record the phase that a check reports."""

    def check_context(self) -> None:
        """Raise RuntimeError if an earlier fault made the device context unusable."""

    def clock(self) -> float:
        """Read the clock for measurements. Return the time in seconds."""
        return time.perf_counter()

    def device(self, device: str, backend: Backend) -> tuple[str, Backend]:
        """Return the device and the backend that replace ``device`` and ``backend``."""
        return device, backend

    def compiler(self) -> Compiler:
        """Return the compiler that compiles kernels at run time."""
        return Compiler()

    def faults(self) -> Callable[[], AbstractContextManager[None]]:
        """Return a function that creates a context in which the simulated faults happen."""
        return nullcontext

    def versions(self, found: Versions) -> Versions:
        """Return the versions of the simulated machine, or ``found`` on a real machine."""
        return found

    def mapped(self) -> dict[str, list[str]]:
        """Return the loaded GPU library files of this process, by library."""
        return mapped(LIBRARIES)
