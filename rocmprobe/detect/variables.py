"""Environment variables that change what the GPU stack does."""

from __future__ import annotations

from collections.abc import Mapping

from rocmprobe.model import Fact

PREFIXES = (
    "MIOPEN_", "HSA_", "ROCR_", "HIP_", "AMD_", "ROCBLAS_", "HIPBLASLT_", "PYTORCH_", "TORCH_", "ROCM_",
    "ONEDNN_", "MKLDNN_",
)  # fmt: skip
NAMES = frozenset({"CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "ATEN_CPU_CAPABILITY"})


def read_variables(environ: Mapping[str, str]) -> dict[str, Fact]:
    """The variables that matter and are set, by name, sorted."""
    return {
        name: Fact(environ[name], "environment")
        for name in sorted(environ)
        if name in NAMES or name.startswith(PREFIXES)
    }
