"""Backends for cuDNN and MIOpen, PyTorch's convolution libraries on NVIDIA and AMD GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Optional

from rocmprobe.backends.base import switched
from rocmprobe.checks.tools.context import Meter
from rocmprobe.knowledge import miopen_log, solvers
from rocmprobe.knowledge.miopen_log import Reading
from rocmprobe.knowledge.settings import LIBRARIES

#: Variables that disable MIOpen's inexact solvers, and the values with which MIOpen disables them.
#: Source: MIOpen src/include/miopen/env.hpp.
_TRANSFORMS = ("MIOPEN_DEBUG_CONV_WINOGRAD", "MIOPEN_DEBUG_CONV_FFT")
_OFF = ("0", "no", "off", "false", "disable", "disabled")


class Cudnn:
    name = "cudnn"
    library = LIBRARIES["cudnn"]
    device_type = "cuda"
    rounds_parts = True

    @property
    def trace_variables(self) -> dict[str, str]:
        return {}

    def vendor_library_off(self) -> AbstractContextManager[None]:
        import torch

        # Do not use `cudnn.flags`, because a call resets every flag that the call does not pass.
        return switched([(torch.backends.cudnn, "enabled", False)])

    def library_version(self) -> Optional[str]:
        import torch

        cudnn: Any = torch.backends.cudnn
        version = cudnn.version() if cudnn.is_available() else None
        return None if version is None else str(version)

    def synchronize(self, device: str) -> None:
        import torch

        torch.cuda.synchronize(device)

    @contextmanager
    def meter(self, device: str) -> Iterator[Meter]:
        import torch

        def bytes_of(what: str) -> int:
            # Count requested bytes, because blocks are larger than the requests. torch before 2.1 counts only
            # blocks.
            stats = torch.cuda.memory_stats(device)
            return int(stats.get(f"requested_bytes.all.{what}", stats.get(f"allocated_bytes.all.{what}", 0)))

        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = bytes_of("current")
        meter = Meter()
        yield meter
        torch.cuda.synchronize(device)
        meter.peak_bytes = bytes_of("peak") - before

    def read(self, log: str) -> Reading:
        # cuDNN's log lists descriptors, but not the kernels that ran.
        return Reading()

    def is_fallback(self, implementation: str) -> bool:
        return False

    def demands_exactness(self) -> bool:
        # cuDNN can choose Winograd or FFT (both inexact) without logging the choice.
        return False


def format_version(version: int) -> str:
    """Format torch's number for MIOpen's version as MAJOR.MINOR.PATCH.

    The number is major * 1000000 + minor * 1000 + patch.
    """
    return f"{version // 1000000}.{version // 1000 % 1000}.{version % 1000}"


# PyTorch uses cuDNN's device type and switches (torch.backends.cudnn) for MIOpen, too.
class Miopen(Cudnn):
    name = "miopen"
    library = LIBRARIES["miopen"]

    @property
    def trace_variables(self) -> dict[str, str]:
        # Level 5 logs the solver that Find or immediate mode selects. A log of level 6 is six times as long.
        # The second variable logs a MIOpenDriver command line for every call.
        return {"MIOPEN_LOG_LEVEL": "5", "MIOPEN_ENABLE_LOGGING_CMD": "1"}

    def library_version(self) -> Optional[str]:
        packed = super().library_version()
        return None if packed is None else format_version(int(packed))

    def read(self, log: str) -> Reading:
        parsed = miopen_log.parse(log)
        chosen = parsed.choice or miopen_log.ChosenSolver(None, None)
        return Reading(
            chosen.solver,
            chosen.algorithm,
            chosen.workspace_bytes,
            chosen.find_db,
            parsed.failures,
            parsed.commands,
        )

    def is_fallback(self, implementation: str) -> bool:
        return miopen_log.family(implementation) == "naive"

    def demands_exactness(self) -> bool:
        # The variables of a composed setting and of the user count, so read the environment of this process.
        forced = solvers.by_name().get(os.environ.get(solvers.FORCE, ""))
        if forced is not None and forced.family not in ("Winograd", "FFT"):
            return True
        return all(os.environ.get(name, "").strip().lower() in _OFF for name in _TRANSFORMS)
