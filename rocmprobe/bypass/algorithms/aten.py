"""Algorithm that calls PyTorch's own kernels for 2-d convolutions with one group.

Source: ``slow_conv2d`` in aten/src/ATen/native/ConvolutionMM2d.cpp.

Workspace (symbols: see ``base``):

- columns on a CPU: N * C * taps * windows * b
- columns on a GPU: C * taps * windows * b
- columns for 1x1 at stride 1: none
- results, which PyTorch allocates itself
- copies of operands that are not contiguous
"""

from __future__ import annotations

from math import prod
from typing import Any, cast

import torch

from rocmprobe.bypass.algorithms.base import (
    BWD_DATA,
    Algorithm,
    Operands,
    Plan,
    gemm_flops,
    weight_traffic,
)
from rocmprobe.geometry import Geometry


class Aten(Algorithm):
    name = "aten"

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        fits = (
            len(plain.kernel) == 2 and plain.groups == 1 and set(plain.dilation) == {1}
            and min(plain.padding) >= 0 and operands.wide == operands.size and _has_full_feature(plain)
        )  # fmt: skip
        if not fits:
            return None
        on_cpu = operands.device_type == "cpu"
        samples = plain.batch if on_cpu else 1
        launches = 1 + (1 if on_cpu else 2) * plain.batch
        windows = prod(plain.feature)
        # For a pointwise convolution, PyTorch uses the image itself as columns.
        columns = 0 if plain.is_pointwise() else plain.channels * plain.taps * windows
        sides = plain.batch * (plain.channels * prod(plain.image) + plain.filters * windows)
        # The results count as workspace, because PyTorch allocates new tensors for them. Operands count,
        # because PyTorch can need contiguous copies of them.
        workspace = (samples * columns + 2 * sides + 2 * plain.filters * plain.depth) * operands.size
        if workspace > cap:
            return None
        moved = 2 * plain.batch * columns * operands.size * (2 if direction == BWD_DATA else 1)
        moved += weight_traffic(plain, operands, direction, plain.batch)
        return Plan(
            self.name, False, samples, plain.feature, workspace, gemm_flops(plain), moved, launches
        )  # fmt: skip

    def forward(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        feature: torch.Tensor,
    ) -> None:
        sizes = (list(plain.kernel), bias, list(plain.stride), list(plain.padding))
        found = torch.ops.aten._slow_conv2d_forward(
            _with_contiguous_strides(image), _with_contiguous_strides(weight), *sizes
        )
        _become(feature, found)

    def backward_data(
        self,
        plan: Plan,
        plain: Geometry,
        gradient: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        image: torch.Tensor,
    ) -> None:
        # ``image`` is not filled yet, but PyTorch reads only its sizes.
        found, _, _ = _backward(plain, gradient, image, weight, [True, False, False])
        if bias is None:
            _become(image, found)
        else:
            torch.add(found, bias.view(-1, 1, 1), out=image)

    def backward_weights(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        gradient: torch.Tensor,
        weight_gradient: torch.Tensor,
    ) -> None:
        _, found, _ = _backward(plain, gradient, image, weight_gradient, [False, True, False])
        _become(weight_gradient, found)


def _become(result: torch.Tensor, found: torch.Tensor) -> None:
    if result.stride() == found.stride():
        # torch has no type annotation for this overload.
        cast(Any, result).set_(found)
    else:
        result.copy_(found)


def _has_full_feature(plain: Geometry) -> bool:
    """Return True if ``plain.feature`` is the output size that PyTorch computes for ``plain.image``."""
    return all(
        (size + 2 * p - k) // s + 1 == windows
        for size, p, k, s, windows in zip(
            plain.image, plain.padding, plain.kernel, plain.stride, plain.feature
        )
    )


def _with_contiguous_strides(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` with the strides of a contiguous tensor of the same shape."""
    # If a dimension has size 1, a contiguous tensor can have strides that PyTorch interprets as
    # channels-last. Then PyTorch's kernels would treat all operands as channels-last.
    if tensor.is_contiguous() and not tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor
    return tensor.contiguous().view(-1).view(tensor.shape)


def _backward(
    plain: Geometry, gradient: torch.Tensor, image: torch.Tensor, weight: torch.Tensor, mask: list[bool]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = torch.ops.aten._slow_conv2d_backward.output_mask(
        _with_contiguous_strides(gradient),
        _with_contiguous_strides(image),
        _with_contiguous_strides(weight),
        list(plain.kernel),
        list(plain.stride),
        list(plain.padding),
        mask,
    )
    return found
