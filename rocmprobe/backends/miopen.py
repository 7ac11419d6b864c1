"""MIOpen, PyTorch's convolution library on AMD GPUs."""

from __future__ import annotations

from typing import Optional

from rocmprobe.backends import miopen_log
from rocmprobe.backends.base import Reading
from rocmprobe.backends.cudnn import Cudnn


class Miopen(Cudnn):
    name = "miopen"
    library = "MIOpen"

    @property
    def trace_variables(self) -> dict[str, str]:
        """Level 5 names the choice of Find and the solver of immediate mode; 6 is six times as long."""
        return {"MIOPEN_LOG_LEVEL": "5"}

    def library_version(self) -> Optional[str]:
        """torch packs it as major * 1000000 + minor * 1000 + patch."""
        packed = super().library_version()
        if packed is None:
            return None
        number = int(packed)
        return f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"

    def read(self, log: str) -> Reading:
        told = miopen_log.parse(log)
        chosen = told.choice or miopen_log.Choice(None, None)
        return Reading(chosen.solver, chosen.algorithm, chosen.workspace_bytes, chosen.find_db, told.failures)

    def is_fallback(self, implementation: str) -> bool:
        return miopen_log.family(implementation) == "naive"
