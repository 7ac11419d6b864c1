"""Algorithm that calls PyTorch's own kernels for 2-d convolutions with one group.

Source: ``slow_conv2d`` in aten/src/ATen/native/ConvolutionMM2d.cpp.

Workspace (symbols: see ``algorithm``):

- columns on a CPU: N * C * taps * windows * b
- columns on a GPU: C * taps * windows * b
- columns for 1x1 at stride 1: none
- results, which PyTorch allocates itself
- copies of operands that are not contiguous
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Optional, cast

import torch

from rocmprobe.bypass.algorithms.algorithm import BWD_DATA, FWD, Algorithm, Plan, Task, weight_traffic

_forward = torch.ops.aten._slow_conv2d_forward.default
_backward = torch.ops.aten._slow_conv2d_backward.output_mask


class SlowConv2d(Algorithm):
    name = "slow_conv2d"

    def applies(self, task: Task) -> bool:
        plain = task.plain
        # In half precision, only the forward product of a GPU rounds each result once.
        exact = not task.half or (task.on_gpu and task.direction == FWD)
        return (
            exact and len(plain.kernel) == 2 and plain.groups == 1 and set(plain.dilation) == {1}
            and plain.has_full_feature()
        )  # fmt: skip

    def cost(self, task: Task) -> Sequence[Plan]:
        plain = task.plain
        samples = 1 if task.on_gpu else plain.batch
        launches = 1 + (2 if task.on_gpu else 1) * plain.batch
        windows = prod(plain.feature)
        # For a pointwise convolution, PyTorch uses the image itself as columns.
        columns = 0 if plain.is_pointwise() else plain.channels * plain.taps * windows
        sides = plain.batch * (plain.channels * prod(plain.image) + plain.filters * windows)
        # The results count as workspace, because PyTorch allocates new tensors for them. Operands count,
        # because PyTorch can need contiguous copies of them.
        workspace = (samples * columns + 2 * sides) * task.size + 2 * task.weight_bytes
        # On a CPU, the columns of the whole batch leave the caches: they are written, which also reads the
        # memory, and read again.
        accesses = 2 if task.on_gpu else 3
        moved = accesses * plain.batch * columns * task.size * (2 if task.direction == BWD_DATA else 1)
        moved += weight_traffic(task, plain.batch)
        return [Plan(self.name, task, samples, plain.feature, workspace, plain.flops, moved, launches)]

    def forward(
        self,
        plan: Plan,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: Optional[torch.Tensor],
        feature: torch.Tensor,
    ) -> None:
        plain = plan.task.plain
        found = _forward(
            _with_contiguous_strides(image), _with_contiguous_strides(weight), plain.kernel, bias,
            plain.stride, plain.padding,
        )  # fmt: skip
        _become(feature, found)

    def backward(
        self,
        plan: Plan,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: Optional[torch.Tensor],
        feature: torch.Tensor,
    ) -> None:
        plain = plan.task.plain
        to_image = plan.task.direction == BWD_DATA
        # The result is not filled yet, but PyTorch reads only its sizes.
        gradients = _backward(
            _with_contiguous_strides(feature), _with_contiguous_strides(image),
            _with_contiguous_strides(weight), plain.kernel, plain.stride, plain.padding,
            [to_image, not to_image, False],
        )  # fmt: skip
        if bias is not None:
            torch.add(gradients[0], bias.view(-1, 1, 1), out=image)
        elif to_image:
            _become(image, gradients[0])
        else:
            _become(weight, gradients[1])


def _become(result: torch.Tensor, found: torch.Tensor) -> None:
    if result.stride() == found.stride() and result._base is None:
        # torch has no type annotation for this overload.
        cast(Any, result).set_(found)
    else:
        result.copy_(found)


def _with_contiguous_strides(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` with the strides of a contiguous tensor of the same shape."""
    # If a dimension has size 1, a contiguous tensor can have strides that PyTorch interprets as
    # channels-last. Then PyTorch's kernels would treat all operands as channels-last.
    if tensor.is_contiguous() and not tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor
    return tensor.contiguous().view(-1).view(tensor.shape)
