"""Algorithm for 1x1 convolutions at stride 1: a matrix product of weight and image, without columns.

Workspace: none, or a copy of the weight gradient if it is not contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Optional

import torch

from rocmprobe.bypass.algorithms.algorithm import (
    BWD_DATA,
    BWD_WEIGHTS,
    Algorithm,
    Plan,
    Task,
    weight_traffic,
)
from rocmprobe.bypass.algorithms.matrices import accumulate, multiply, weight_matrices
from rocmprobe.geometry import Geometry


class Pointwise(Algorithm):
    name = "pointwise"

    def applies(self, task: Task) -> bool:
        # Half precision must be summed up in fp32: a GPU does so within a product, but not over products.
        exact = not task.half or (task.on_gpu and task.direction != BWD_WEIGHTS)
        return exact and task.dense and task.plain.is_pointwise()

    def cost(self, task: Task) -> Sequence[Plan]:
        plain = task.plain
        copy = task.weight_bytes if task.direction == BWD_WEIGHTS and task.channels_last else 0
        launches = 1 if plain.groups == 1 and task.direction != BWD_WEIGHTS else plain.batch
        moved = 2 * copy + weight_traffic(task, plain.batch)
        return [Plan(self.name, task, plain.batch, plain.feature, copy, plain.flops, moved, launches)]

    def forward(
        self,
        plan: Plan,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: Optional[torch.Tensor],
        feature: torch.Tensor,
    ) -> None:
        plain = plan.task.plain
        _multiply(plain, image, weight_matrices(weight, plain, weight.dtype), bias, feature)

    def backward(
        self,
        plan: Plan,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: Optional[torch.Tensor],
        feature: torch.Tensor,
    ) -> None:
        plain = plan.task.plain
        if plan.task.direction == BWD_DATA:
            transposed = weight_matrices(weight, plain, weight.dtype).transpose(1, 2)
            _multiply(plain, feature, transposed, bias, image)
            return
        total = weight
        if not weight.is_contiguous():
            total = torch.empty_like(weight, memory_format=torch.contiguous_format)
        by_group = total.view(plain.groups, plain.filters // plain.groups, plain.depth)
        sides = zip(_matrices(feature, plain), _matrices(image, plain))
        for sample, (features, images) in enumerate(sides):
            accumulate(by_group, features, images, first=sample == 0)
        if total is not weight:
            weight.copy_(total)


def _multiply(
    plain: Geometry,
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor],
    result: torch.Tensor,
) -> None:
    by_group = None if bias is None else bias.reshape(plain.groups, -1, 1)
    if plain.groups == 1:
        batch, positions = plain.batch, prod(plain.image)
        if batch > 1:
            weight = weight.expand(batch, -1, -1)
        sources, results = source.view(batch, -1, positions), result.view(batch, -1, positions)
        multiply(weight, sources, results, by_group)
        return
    sources, results = _matrices(source, plain), _matrices(result, plain)
    for some, into in zip(sources, results):
        multiply(weight, some, into, by_group)


def _matrices(tensor: torch.Tensor, plain: Geometry) -> torch.Tensor:
    return tensor.view(tensor.shape[0], plain.groups, tensor.shape[1] // plain.groups, -1)
