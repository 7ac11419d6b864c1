"""Algorithm for 1x1 convolutions at stride 1: a matrix product of weight and image, without columns.

Workspace: none, or a copy of the weight gradient if it is not contiguous.
"""

from __future__ import annotations

import torch

from rocmprobe.bypass.algorithms.base import (
    BWD_WEIGHTS,
    Algorithm,
    Operands,
    Plan,
    gemm_flops,
    weight_traffic,
)
from rocmprobe.bypass.algorithms.gemm import accumulate, as_matrices, is_ready, multiply
from rocmprobe.bypass.algorithms.im2col import store_total, weight_matrices, weight_total
from rocmprobe.geometry import Geometry


class Pointwise(Algorithm):
    name = "pointwise"

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        if not (plain.is_pointwise() and operands.dense and operands.wide == operands.size):
            return None
        weight = plain.filters * plain.depth * operands.wide
        copy = weight if direction == BWD_WEIGHTS and operands.channels_last else 0
        launches = 1 if plain.groups == 1 else plain.batch
        moved = 2 * copy + weight_traffic(plain, operands, direction, plain.batch)
        return Plan(self.name, False, plain.batch, plain.feature, copy, gemm_flops(plain), moved, launches)

    def forward(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        feature: torch.Tensor,
    ) -> None:
        _through(plain, image, weight_matrices(weight, plain), bias, feature)

    def backward_data(
        self,
        plan: Plan,
        plain: Geometry,
        gradient: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        image: torch.Tensor,
    ) -> None:
        _through(plain, gradient, weight_matrices(weight, plain).transpose(1, 2), bias, image)

    def backward_weights(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        gradient: torch.Tensor,
        weight_gradient: torch.Tensor,
    ) -> None:
        total = weight_total(weight_gradient, plain, image.dtype)
        samples = zip(_matrices(gradient, plain), _matrices(image, plain))
        for sample, (gradients, images) in enumerate(samples):
            accumulate(total, gradients, images, first=sample == 0)
        store_total(total, weight_gradient)


def is_dense(plain: Geometry, *operands: torch.Tensor) -> bool:
    """Return True if BLAS can use the ``(N, C, *spatial)`` operands as matrices without a copy."""
    return all(as_matrices(operand, plain.groups) is not None for operand in operands)


def is_dense_weight(plain: Geometry, weight: torch.Tensor) -> bool:
    """Return True if BLAS can use the weight as one matrix per group without a copy."""
    grouped = (plain.groups, plain.filters // plain.groups, plain.depth)
    try:
        return is_ready(weight.view(grouped))
    except RuntimeError:
        return False


def _through(
    plain: Geometry,
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    result: torch.Tensor,
) -> None:
    by_group = None if bias is None else bias.reshape(plain.groups, -1, 1)
    sources, targets = _matrices(source, plain), _matrices(result, plain)
    if plain.groups == 1:
        stacked = weight.expand(plain.batch, *weight.shape[1:])
        multiply(stacked, sources[:, 0], targets[:, 0], by_group)
        return
    for each, target in zip(sources, targets):
        multiply(weight, each, target, by_group)


def _matrices(tensor: torch.Tensor, plain: Geometry) -> torch.Tensor:
    return tensor.view(tensor.shape[0], plain.groups, tensor.shape[1] // plain.groups, -1)
