"""Convolution as it is commonly patched into a model: all windows of the batch copied side by side (unfold),
and one product. A yardstick for time; what the bypass computes is its own matter."""

from __future__ import annotations

from typing import Any

from rocmprobe.model.problems import Problem
from rocmprobe.worker.tensors import Tensors


def has_naive(problem: Problem) -> bool:
    """Whether ``F.unfold`` cuts the windows of this problem."""
    return problem.rank == 2 and not problem.transposed


def run_naive(problem: Problem, direction: str, tensors: Tensors) -> dict[str, Any]:
    """One direction by unfold, matmul and fold, named as ``tensors.run`` does: "output" (N, K, OH, OW),
    "input" (N, C, H, W) or "weight" (K, C/groups, KH, KW). The gradient of the bias is left out."""
    import torch.nn.functional as F

    window = (problem.kernel, problem.dilation, problem.padding, problem.stride)
    batch, groups = problem.batch, problem.groups
    filters = tensors.weight.reshape(groups, problem.out_channels // groups, -1)

    def columns() -> Any:
        unfolded = F.unfold(tensors.input, *window)
        return unfolded.view(batch, groups, -1, unfolded.shape[-1])

    if direction == "fwd":
        output = (filters @ columns()).view(problem.output_shape)
        return {"output": output if tensors.bias is None else output + tensors.bias.view(-1, 1, 1)}
    grad = tensors.grad.reshape(batch, groups, problem.out_channels // groups, -1)
    if direction == "bwd-data":
        unfolded = filters.transpose(1, 2) @ grad
        return {"input": F.fold(unfolded.flatten(1, 2), problem.input_size, *window)}
    return {"weight": (grad @ columns().transpose(2, 3)).sum(0).view(problem.weight_shape)}
