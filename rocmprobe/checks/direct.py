"""Checks of rocBLAS and MIOpen without PyTorch, which show if PyTorch or the library is at fault.

``backends/direct`` runs these checks in a process that does not import torch.
"""

from __future__ import annotations

from rocmprobe.checks.check import Check

CHECKS = (
    Check(
        name="rocblas-direct",
        rung="direct",
        question="Does rocBLAS multiply matrices correctly without PyTorch?",
        function=None,
        seconds=0.3,
    ),
    Check(
        name="miopen-direct",
        rung="direct",
        question="Is convolution by MIOpen correct without PyTorch?",
        function=None,
        seconds=1,
    ),
)
