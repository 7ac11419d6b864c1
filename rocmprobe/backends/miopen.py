"""MIOpen, PyTorch's convolution library on AMD GPUs."""

from __future__ import annotations

from typing import Optional

from rocmprobe.backends.cudnn import Cudnn
from rocmprobe.knowledge import miopen_log
from rocmprobe.knowledge.miopen_log import Reading
from rocmprobe.knowledge.settings import LIBRARIES


def unpacked(version: int) -> str:
    """MAJOR.MINOR.PATCH of what torch packs as major * 1000000 + minor * 1000 + patch."""
    return f"{version // 1000000}.{version // 1000 % 1000}.{version % 1000}"


class Miopen(Cudnn):
    name = "miopen"
    library = LIBRARIES["miopen"]

    @property
    def trace_variables(self) -> dict[str, str]:
        """Level 5 names the choice of Find and the solver of immediate mode; 6 is six times as long. Every
        call comes with its command line for MIOpenDriver."""
        return {"MIOPEN_LOG_LEVEL": "5", "MIOPEN_ENABLE_LOGGING_CMD": "1"}

    def library_version(self) -> Optional[str]:
        packed = super().library_version()
        return None if packed is None else unpacked(int(packed))

    def read(self, log: str) -> Reading:
        parsed = miopen_log.parse(log)
        chosen = parsed.choice or miopen_log.Choice(None, None)
        return Reading(
            chosen.solver, chosen.algorithm, chosen.workspace_bytes, chosen.find_db,
            parsed.failures, parsed.commands,
        )  # fmt: skip

    def is_fallback(self, implementation: str) -> bool:
        return miopen_log.family(implementation) == "naive"
