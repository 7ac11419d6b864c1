"""MIOpen, PyTorch's convolution library on AMD GPUs."""

from __future__ import annotations

import re
from typing import Optional

from rocmprobe.backends.cudnn import Cudnn

# MIOPEN_LOG_LEVEL 5 names the choice of Find and the solver of immediate mode:
#   MIOpen(HIP): Info [FindConvFwdAlgorithm] FW Chosen Algorithm: GemmFwdRest , 6912, 14.1
#   MIOpen(HIP): Info [ConvolutionForwardImmediate] solver_id = GemmFwdRest, workspace = 6912
_CHOSEN = re.compile(r"(?:Chosen Algorithm: |solver_id = )([^\s,]+)")


class Miopen(Cudnn):
    name = "miopen"
    library = "MIOpen"

    @property
    def trace_variables(self) -> dict[str, str]:
        return {"MIOPEN_LOG_LEVEL": "5"}

    def library_version(self) -> Optional[str]:
        """torch packs it as major * 1000000 + minor * 1000 + patch."""
        packed = super().library_version()
        if packed is None:
            return None
        number = int(packed)
        return f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"

    def implementation(self, log: str) -> Optional[str]:
        chosen = _CHOSEN.findall(log)
        return chosen[-1] if chosen else None

    def is_fallback(self, implementation: str) -> bool:
        return implementation.startswith("ConvDirectNaive")
