"""Checks of rocBLAS and MIOpen without PyTorch, which show if PyTorch or the library is at fault.

``backends/direct`` runs these checks in a process that does not import torch.
"""

from __future__ import annotations

from rocmprobe.checks.check import Check

CHECKS = (
    Check(
        "rocblas-direct", "direct", "Does rocBLAS multiply matrices correctly without PyTorch?", None,
        seconds=0.3,
    ),
    Check(
        "miopen-direct", "direct", "Is convolution by MIOpen correct without PyTorch?", None,
        seconds=1,
    ),
)  # fmt: skip
