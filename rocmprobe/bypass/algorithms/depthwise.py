"""Algorithm that calls PyTorch's own GPU kernel for depthwise 2-d convolution.

Bwd-data with stride 1 is a forward convolution with the flipped weight. For bwd-weights, PyTorch has no
operator that can be called by name.

Source: ``conv_depthwise2d`` in aten/src/ATen/native/cuda/DepthwiseConv2d.cu.

Workspace (symbols: see ``algorithm``): contiguous copies of image, weight and feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Optional

import torch

from rocmprobe.bypass.algorithms.algorithm import FWD, Algorithm, Plan, Task

#: Products per second relative to a matrix product: the kernel reads every operand from the caches.
_GEMM_SHARE = 0.25


class Depthwise(Algorithm):
    name = "depthwise"

    def applies(self, task: Task) -> bool:
        plain = task.plain
        return (
            task.on_gpu and task.direction == FWD and len(plain.kernel) == 2
            and plain.groups == plain.channels > 1 and plain.has_full_feature()
        )  # fmt: skip

    def cost(self, task: Task) -> Sequence[Plan]:
        plain = task.plain
        image = plain.batch * plain.channels * prod(plain.image) * task.size
        feature = plain.batch * plain.filters * prod(plain.feature) * task.size
        copies = 0 if task.dense and not task.channels_last else 1
        workspace = copies * (image + feature) + task.weight_bytes
        moved = (1 + 2 * copies) * (image + feature)
        return [
            Plan(
                self.name, task, plain.batch, plain.feature, workspace, plain.flops, moved, 1 + 2 * copies,
                gemm_share=_GEMM_SHARE,
            )
        ]  # fmt: skip

    def forward(
        self,
        plan: Plan,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: Optional[torch.Tensor],
        feature: torch.Tensor,
    ) -> None:
        plain = plan.task.plain
        sizes = (plain.kernel, bias, plain.stride, plain.padding, plain.dilation)
        # With ``out``, PyTorch copies the result if the feature is not contiguous.
        torch.ops.aten._conv_depthwise2d.out(image, weight, *sizes, out=feature)
