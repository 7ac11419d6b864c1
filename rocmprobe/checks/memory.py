"""What convolution allocates, held against what it should: the device belongs to the measurement alone
meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, Optional

from rocmprobe.checks.check import EVERY_DIRECTION, Check
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.tensors import operands_on_device, run
from rocmprobe.model.problems import Problem

#: Allocators round sizes up; more than this multiple of what was predicted is a wrong prediction.
TOLERANCE = 1.2
#: PyTorch's own kernels that have the columns of the whole batch at once on a CPU: in forward, in backward.
#: Where it is not the whole batch, and on a GPU, it is one sample. Source: aten/src/ATen/native/
#: ConvolutionMM2d.cpp, ConvolutionMM3d.cpp, NaiveConvolutionTranspose2d.cpp, NaiveConvolutionTranspose3d.cpp,
#: NaiveDilatedConvolution.cpp of torch 2.13; 1.13.1 needs less in transposed forward: one sample, too.
_WHOLE_BATCH = {
    "Slow2d": (True, True),
    "Slow3d": (True, True),
    "SlowTranspose2d": (True, False),
    "SlowTranspose3d": (False, False),
    "SlowDilated2d": (False, False),
    "SlowDilated3d": (False, False),
}


def memory(context: CheckContext) -> CheckResult:
    """Bytes: at the peak of forward and backward above the operands, and kept for backward.

    ``peak_bytes`` is above input, weight and the output's gradient, so it holds the output and both
    gradients; ``above_output_bytes`` is above the output, too; ``forward_workspace_bytes`` the same in the
    forward alone. ``predicted_saved_bytes`` are input and weight, all that PyTorch's
    ``convolution_backward`` is given besides the gradient (tools/autograd/derivatives.yaml).
    ``predicted_bytes`` predicts the peak where the implementation reports its workspace, else
    ``least_bytes``: output and gradients. What exceeds its prediction is wrong.
    """
    import torch

    from rocmprobe.bypass import reset_status, status

    problem, operands = context.the_problem, operands_on_device(context)
    leaves = [operands.input.requires_grad_(), operands.weight.requires_grad_()]
    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        kept[tensor.data_ptr()] = _bytes(tensor)
        return tensor

    def forward() -> Any:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            return run(problem, "fwd", operands)["output"]

    def backward(output: Any) -> None:
        torch.autograd.grad(output, leaves, operands.grad)

    context.first_call(lambda: backward(forward()))
    kept.clear()
    reset_status()
    with context.measured(), context.tested():
        with context.backend.meter(context.device) as ahead:
            output = forward()
        with context.backend.meter(context.device) as back:
            backward(output)
        workspace = (
            of_bypass(context, set(status()["calls"])) if context.bypass else of_pytorch(context, *leaves)
        )
    result, gradients = _bytes(output), sum(map(_bytes, leaves))
    peak = max(ahead.peak_bytes, result + back.peak_bytes)
    answer = CheckResult(
        memory={
            "peak_bytes": peak, "saved_bytes": sum(kept.values()),
            "predicted_saved_bytes": gradients, "above_output_bytes": peak - result,
            "forward_workspace_bytes": ahead.peak_bytes - result,
        }
    )  # fmt: skip
    if workspace is None:
        answer.memory["least_bytes"] = result + gradients
    else:
        answer.memory["predicted_bytes"] = result + max(workspace.forward, gradients + workspace.backward)
    for name, predicted in (("peak", "predicted_bytes"), ("saved", "predicted_saved_bytes")):
        measured, limit = answer.memory[f"{name}_bytes"], answer.memory.get(predicted)
        if limit is not None and measured > TOLERANCE * limit:
            answer.state = "wrong"
            answer.message = f"{name}: {measured} bytes, {limit} were predicted"
    return answer


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


@dataclass(frozen=True)
class Workspace:
    """What a convolution allocates above its operands and results, as far as it can be predicted.

    Upper bounds in bytes: above input, weight and output in ``forward``; above the gradients, too, in
    ``backward``."""

    forward: int
    backward: int


def of_bypass(context: CheckContext, taken: set[str]) -> Optional[Workspace]:
    """What the algorithms that the bypass took say of themselves; None for operands with gaps, which they
    copy first."""
    from rocmprobe import bypass

    problem = replace(context.the_problem, dtype=context.dtype_name)
    if problem.noncontiguous:
        return None
    explained = bypass.explain(problem, context.backend.device_type)

    def most(*directions: str) -> int:
        plans = [plan for each in directions for plan in explained[each].alternatives]
        return max((plan.workspace_bytes for plan in plans if plan.algorithm in taken), default=0)

    return Workspace(most("fwd"), most("bwd-data", "bwd-weights"))


def of_pytorch(context: CheckContext, input: Any, weight: Any) -> Optional[Workspace]:
    """What PyTorch's own kernels allocate where it takes them under the setting that holds now; None where a
    library is taken, which does not report it."""
    problem = context.the_problem
    kernel = taken_kernel(problem, input, weight)
    if kernel not in _WHOLE_BATCH or problem.channels_last or problem.noncontiguous:
        # In other layouts there are copies besides.
        return None
    size = input.element_size()
    image, filters = size * prod(problem.input_shape), size * prod(problem.weight_shape)
    feature = size * prod(problem.output_shape)
    forward, backward = (
        (problem.batch if whole and context.backend.device_type == "cpu" else 1) * size * _columns(problem)
        for whole in _WHOLE_BATCH[kernel]
    )
    groups = problem.groups
    if groups == 1:
        return Workspace(forward, backward)
    # A group at a time, from copies of its slices; what they give is joined in the end.
    return Workspace(
        max(forward + image // groups, feature),
        max(backward + (image + feature) // groups, image + filters),
    )


def taken_kernel(problem: Problem, input: Any, weight: Any) -> str:
    """PyTorch's name for who computes a convolution: "Slow2d", "Mkldnn", "Miopen", ..."""
    import torch

    taken = torch._C._select_conv_backend(
        input, weight, None, list(problem.stride), list(problem.padding), list(problem.dilation),
        problem.transposed, list(problem.output_padding), problem.groups,
    )  # fmt: skip
    return str(taken).rpartition(".")[2]


def _columns(problem: Problem) -> int:
    """Values in the columns of one sample and group: a column of taps and channels for each window."""
    channels = problem.out_channels if problem.transposed else problem.in_channels
    windows = prod(problem.input_size if problem.transposed else problem.output_size)
    ones = {*problem.kernel, *problem.stride, *problem.dilation} == {1}
    if ones and not any(problem.padding) and not problem.transposed:
        # The image itself serves as columns.
        return 0
    return channels // problem.groups * prod(problem.kernel) * windows


CHECKS = (
    Check(
        "memory", "conv", "How much memory does convolution take and keep for backward?", memory,
        EVERY_DIRECTION, exclusive=True, verified=False, seconds=1.5,
    ),
)  # fmt: skip
