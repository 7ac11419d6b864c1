"""Algorithm that runs rocmprobe's own kernels, which are compiled on the user's machine.

Workspace: see ``grouped.py`` and ``gemm.py`` in ``kernels/families``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import torch

from rocmprobe import kernels
from rocmprobe.bypass.algorithms.algorithm import Algorithm, Plan, Task
from rocmprobe.bypass.kernel_modules import stream

#: Minimum of ``Plan.gemm_share``. A small problem leaves most of a GPU idle with every algorithm, but
#: only the estimates for rocmprobe's own kernels include this. Without a minimum, the estimated times of
#: these kernels would be too long.
_LEAST_SHARE = 0.25


class GpuKernel(Algorithm):
    def __init__(self, name: str) -> None:
        self.name = name

    def applies(self, task: Task) -> bool:
        return task.kernels is not None

    def cost(self, task: Task) -> Sequence[Plan]:
        assert task.kernels is not None
        plain = task.plain
        return [
            Plan(
                self.name, task, plain.batch, plain.feature, option.workspace_bytes, option.flops,
                option.moved_bytes, option.launches, option.variant, max(_LEAST_SHARE, option.gemm_share),
            )
            for option in kernels.options(task.kernels, self.name, task.direction, plain, task.cap)
        ]  # fmt: skip

    def forward(
        self,
        plan: Plan,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: Optional[torch.Tensor],
        feature: torch.Tensor,
    ) -> None:
        task = plan.task
        # The kernels require a contiguous bias.
        bias = None if bias is None else bias.contiguous()
        strides = image.stride(), weight.stride(), feature.stride()
        workspace = image.new_empty(max(plan.workspace_bytes, 1), dtype=torch.uint8)
        addresses = {
            "image": image.data_ptr(), "weight": weight.data_ptr(), "feature": feature.data_ptr(),
            "bias": 0 if bias is None else bias.data_ptr(), "workspace": workspace.data_ptr(),
        }  # fmt: skip
        assert task.kernels is not None
        try:
            kernels.convolution(
                task.kernels, self.name, task.direction, task.plain, plan.variant, plan.workspace_bytes,
                addresses, strides, stream(image.device),
            )  # fmt: skip
        except kernels.KernelsUnavailable as unavailable:
            raise RuntimeError(unavailable.reason) from unavailable

    backward = forward
