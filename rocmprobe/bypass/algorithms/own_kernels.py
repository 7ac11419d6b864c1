"""Algorithms that run rocmprobe's own kernels, which are compiled on the user's machine.

Workspace: see ``grouped.py`` and ``gemm.py`` in ``kernels/families``.
"""

from __future__ import annotations

import torch

from rocmprobe import kernels
from rocmprobe.bypass import own_kernels
from rocmprobe.bypass.algorithms.base import BWD_DATA, BWD_WEIGHTS, FWD, Algorithm, Operands, Plan
from rocmprobe.geometry import Geometry

#: Minimum of ``Plan.gemm_share``. A small problem leaves most of a GPU idle with every algorithm, but
#: only the estimates for rocmprobe's own kernels include this. Without a minimum, the estimated times of
#: these kernels would be too long.
_LEAST_SHARE = 0.25


class OwnKernel(Algorithm):
    own_kernel = True

    def __init__(self, name: str) -> None:
        self.name = name

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        return next(iter(self.plans(direction, plain, operands, cap)), None)

    def plans(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> list[Plan]:
        """Return a plan for each applicable kernel, lowest estimated cost first."""
        if operands.own_kernels is None:
            return []
        return [
            Plan(
                self.name, False, plain.batch, plain.feature, option.workspace_bytes, option.flops,
                option.moved_bytes, option.launches, option.variant,
                max(_LEAST_SHARE, option.gemm_share),
            )
            for option in kernels.options(operands.own_kernels, self.name, direction, plain, cap)
        ]  # fmt: skip

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
        own_kernels.compute(
            self.name, direction, plain, plan.variant, plan.workspace_bytes, image, weight, bias, feature
        )
