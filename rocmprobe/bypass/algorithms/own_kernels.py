"""Convolution by kernels of our own, which are compiled on the machine: nothing is copied into columns, and
the sums stay in registers.

They apply where the self-test of :mod:`rocmprobe.kernels` has passed. Every sum has a fixed order.

Workspace: that of the family, see ``kernels/grouped.py`` and ``kernels/gemm.py``.
"""

from __future__ import annotations

import torch

from rocmprobe.bypass import own_kernels
from rocmprobe.bypass.algorithms.base import BWD_DATA, BWD_WEIGHTS, FWD, Algorithm, Operands, Plan
from rocmprobe.kernels.families import FAMILIES, strides
from rocmprobe.kernels.geometry import Geometry
from rocmprobe.kernels.sources import source_hash

#: What is expected of RDNA1 (an estimate, by the shares that others reach there); never measured.
_GEMM_SHARE = 0.6


class OwnKernel(Algorithm):
    own_kernel = True

    def __init__(self, name: str) -> None:
        self.name = name

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        return next(iter(self.plans(direction, plain, operands, cap)), None)

    def plans(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> list[Plan]:
        """A plan for each of the kernels that fits, the most promising first."""
        if not operands.own_kernels:
            return []
        family, lie = FAMILIES[self.name], strides(plain, operands.channels_last)
        found = []
        for variant in family.variants(direction, plain, *lie, operands.dtype, cap=cap):
            figures = family.figures(direction, plain, *lie, operands.dtype, variant, cap=cap)
            if figures:
                found.append(
                    Plan(
                        self.name, False, plain.batch, plain.feature, figures.workspace_bytes, figures.flops,
                        figures.moved_bytes, figures.launches, f"{variant} {source_hash()}", _GEMM_SHARE,
                    )
                )  # fmt: skip
        return found

    def forward(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        feature: torch.Tensor,
    ) -> None:
        self._compute(FWD, plan, plain, image, weight, bias, feature)

    def backward_data(
        self,
        plan: Plan,
        plain: Geometry,
        gradient: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        image: torch.Tensor,
    ) -> None:
        self._compute(BWD_DATA, plan, plain, image, weight, bias, gradient)

    def backward_weights(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        gradient: torch.Tensor,
        weight_gradient: torch.Tensor,
    ) -> None:
        self._compute(BWD_WEIGHTS, plan, plain, image, weight_gradient, None, gradient)

    def _compute(
        self,
        direction: str,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        feature: torch.Tensor,
    ) -> None:
        variant = plan.variant.partition(" ")[0]
        own_kernels.compute(
            self.name, direction, plain, variant, plan.workspace_bytes, image, weight, bias, feature
        )
