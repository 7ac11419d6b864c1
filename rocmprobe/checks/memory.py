"""Check of the memory that convolution allocates, compared to a prediction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Optional

from rocmprobe.checks.check import EVERY_DIRECTION, Check
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.tensors import operands_on_device, run
from rocmprobe.model.problems import Problem

if TYPE_CHECKING:
    from torch import Tensor

#: The prediction is wrong if the measured memory exceeds it by more than this factor. Smaller factors are
#: normal, because allocators round sizes up.
TOLERANCE = 1.2
#: (forward, backward) for each of PyTorch's own kernels. True if the kernel allocates the columns of the
#: whole batch on a CPU, False if it allocates the columns of one sample. On a GPU, every kernel allocates the
#: columns of one sample. Source: files in aten/src/ATen/native: ConvolutionMM2d.cpp, ConvolutionMM3d.cpp,
#: NaiveConvolutionTranspose2d.cpp, NaiveConvolutionTranspose3d.cpp, NaiveDilatedConvolution.cpp of torch
#: 2.13. In torch 1.13.1, transposed forward allocates only the columns of one sample on a CPU, too.
_WHOLE_BATCH = {
    "Slow2d": (True, True),
    "Slow3d": (True, True),
    "SlowTranspose2d": (True, False),
    "SlowTranspose3d": (False, False),
    "SlowDilated2d": (False, False),
    "SlowDilated3d": (False, False),
}


def memory(context: CheckContext) -> CheckResult:
    """Measure the memory that forward and backward use, and the memory that is saved for backward.

    Results are in bytes. Peaks do not include input, weight and the output's gradient.

    - ``peak_bytes``: peak of forward and backward
    - ``above_output_bytes``: ``peak_bytes`` minus the output
    - ``forward_workspace_bytes``: peak of forward minus the output
    - ``saved_bytes``: memory saved for backward
    - ``predicted_saved_bytes``: size of input and weight
    - ``predicted_bytes``: predicted peak, if the workspace is known
    - ``least_bytes``: size of output and gradients, if the workspace is unknown

    The state is "wrong" if a measurement exceeds ``TOLERANCE`` times its prediction.
    """
    import torch

    from rocmprobe.bypass import reset_status, status

    problem, operands = context.the_problem, operands_on_device(context)
    leaves = [operands.input.requires_grad_(), operands.weight.requires_grad_()]
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = _bytes(tensor)
        return tensor

    def forward() -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            return run(problem, "fwd", operands)["output"]

    def backward(output: Tensor) -> None:
        torch.autograd.grad(output, leaves, operands.grad)

    context.first_call(lambda: backward(forward()))
    kept.clear()
    reset_status()
    with context.measured(), context.under_setting():
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
            "peak_bytes": peak,
            "saved_bytes": sum(kept.values()),
            "predicted_saved_bytes": gradients,
            "above_output_bytes": peak - result,
            "forward_workspace_bytes": ahead.peak_bytes - result,
        }
    )
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


def _bytes(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


@dataclass(frozen=True)
class Workspace:
    """Upper bounds of the memory, in bytes, that a convolution uses in addition to operands and results."""

    forward: int
    backward: int


def of_bypass(context: CheckContext, taken: set[str]) -> Optional[Workspace]:
    """Return the largest workspace of the bypass algorithms named in ``taken``.

    Return None if operands have gaps between elements.
    """
    from rocmprobe import bypass

    problem = replace(context.the_problem, dtype=context.dtype_name)
    # ``bypass.explain`` assumes operands without gaps, but the algorithms copy operands with gaps.
    if problem.noncontiguous:
        return None
    explained = bypass.explain(problem, context.backend.device_type)

    def most(*directions: str) -> int:
        plans = [plan for direction in directions for plan in explained[direction].alternatives]
        return max((plan.workspace_bytes for plan in plans if plan.algorithm in taken), default=0)

    return Workspace(most("fwd"), most("bwd-data", "bwd-weights"))


def of_pytorch(context: CheckContext, input: Tensor, weight: Tensor) -> Optional[Workspace]:
    """Return the workspace of the kernel that PyTorch selects, or None if the workspace is unknown."""
    problem = context.the_problem
    kernel = selected_backend(problem, input, weight)
    if kernel not in _WHOLE_BATCH or problem.channels_last or problem.noncontiguous:
        # PyTorch copies operands that are not contiguous, and the prediction does not include these copies.
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
    # PyTorch copies and computes one group at a time, and concatenates the results of all groups at the end.
    return Workspace(
        max(forward + image // groups, feature),
        max(backward + (image + feature) // groups, image + filters),
    )


def selected_backend(problem: Problem, input: Tensor, weight: Tensor) -> str:
    """Return PyTorch's name for the backend of a convolution ("Slow2d", "Mkldnn", "Miopen", ...)."""
    import torch

    taken = torch._C._select_conv_backend(
        input,
        weight,
        None,
        list(problem.stride),
        list(problem.padding),
        list(problem.dilation),
        problem.transposed,
        list(problem.output_padding),
        problem.groups,
    )
    return str(taken).rpartition(".")[2]


def _columns(problem: Problem) -> int:
    """Return the number of values that im2col writes per sample and group."""
    channels = problem.out_channels if problem.transposed else problem.in_channels
    windows = prod(problem.input_size if problem.transposed else problem.output_size)
    ones = {*problem.kernel, *problem.stride, *problem.dilation} == {1}
    if ones and not any(problem.padding) and not problem.transposed:
        # The kernel uses the image itself as columns.
        return 0
    return channels // problem.groups * prod(problem.kernel) * windows


CHECKS = (
    Check(
        name="memory",
        rung="conv",
        question="How much memory does convolution use and keep for backward?",
        function=memory,
        requires=EVERY_DIRECTION,
        process="measuring",
        seconds=1.5,
    ),
)
