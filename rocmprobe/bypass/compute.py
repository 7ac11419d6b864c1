"""The two sums behind every convolution operator, each by the algorithm that its plan names."""

from __future__ import annotations

import torch

from rocmprobe.bypass import col2im, im2col, pointwise
from rocmprobe.bypass.counts import count_call
from rocmprobe.bypass.geometry import BWD_WEIGHTS, FWD, Geometry
from rocmprobe.bypass.plan import Operands, Plan, choose

DTYPES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}


class Problem:
    """A plain convolution and the cap, in bytes, on the workspace of each of its directions."""

    def __init__(self, plain: Geometry, cap: int) -> None:
        self.plain = plain
        self._cap = cap

    def through(
        self,
        direction: str,
        source: torch.Tensor,
        weight: torch.Tensor,
        *,
        bias: torch.Tensor | None,
        result: torch.Tensor,
    ) -> None:
        """fwd or bwd-data: from one side and the weight, plus a bias for each channel, to the other side."""
        plain = self.plain
        dense = pointwise.is_dense(plain, source) and pointwise.is_dense_weight(plain, weight)
        plan = self._plan(direction, result, dense)
        dtype = im2col.accumulation_dtype(source.dtype)
        if plan.flipped:
            matrices = im2col.flipped_weight_matrices(weight, plain, dtype)
            im2col.forward(plain.flipped(), plan, source, matrices, bias=bias, feature=result)
            return
        matrices = im2col.weight_matrices(weight, plain, dtype)
        if plan.algorithm == "pointwise" and direction == FWD:
            pointwise.forward(plain, source, matrices, bias=bias, feature=result)
        elif plan.algorithm == "pointwise":
            pointwise.backward_data(plain, source, matrices, bias=bias, image=result)
        elif direction == FWD:
            im2col.forward(plain, plan, source, matrices, bias=bias, feature=result)
        else:
            col2im.backward_data(plain, plan, source, matrices, bias=bias, image=result)

    def weights(self, image: torch.Tensor, feature: torch.Tensor, result: torch.Tensor) -> None:
        """bwd-weights: from both sides to the gradient of the weight."""
        plan = self._plan(BWD_WEIGHTS, result, pointwise.is_dense(self.plain, image, feature))
        if plan.algorithm == "pointwise":
            pointwise.backward_weights(self.plain, image, feature, result)
        else:
            im2col.backward_weights(self.plain, plan, image, feature, result)

    def _plan(self, direction: str, result: torch.Tensor, dense: bool) -> Plan:
        operands = Operands(
            dtype=DTYPES[result.dtype],
            device_type=result.device.type,
            channels_last=not result.is_contiguous(),
            dense=dense,
        )
        plan = choose(direction, self.plain, operands, self._cap)
        count_call(plan.algorithm)
        return plan
