"""Check of the memory that convolution allocates, compared to a prediction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, Optional

from rocmprobe.checks.check import EVERY_DIRECTION, Check
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.tensors import operands_on_device, run
from rocmprobe.model.problems import Problem

#: The prediction is wrong if the measured memory exceeds it by more than this factor. Smaller factors are
#: normal, because allocators round sizes up.
TOLERANCE = 1.2
#: (forward, backward) for each of PyTorch's own kernels. True means that the kernel allocates the columns of
#: the whole batch on a CPU. False means that it allocates those of one sample. On a GPU, it always allocates
#: those of one sample. Source: files in aten/src/ATen/native: ConvolutionMM2d.cpp, ConvolutionMM3d.cpp,
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
    """Measure the peak memory of forward and backward, and the memory that is saved for backward.

    All values are in bytes. The peaks do not include input, weight and the output's gradient. ``peak_bytes``
    includes the output and the gradients of input and weight. ``above_output_bytes`` is ``peak_bytes``
    without the output. ``forward_workspace_bytes`` is the peak of forward alone without the output.
    ``saved_bytes`` is the memory saved for backward. ``predicted_saved_bytes`` is the size of input and
    weight, the only tensors that ``convolution_backward`` needs.

    If the workspace of the implementation is known, ``predicted_bytes`` is the predicted peak. Otherwise
    ``least_bytes`` is the size of output and gradients. The state is "wrong" if a measured value exceeds
    ``TOLERANCE`` times its prediction.
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
    """Predicted memory that a convolution allocates in addition to its operands and results.

    Both values are upper bounds in bytes. For ``backward``, the results are the gradients of input and
    weight.
    """

    forward: int
    backward: int


def of_bypass(context: CheckContext, taken: set[str]) -> Optional[Workspace]:
    """Return the largest workspace that the bypass plans for the algorithms named in ``taken``.

    Return None if operands have gaps between elements, because the algorithms copy these operands.
    """
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
    """Return the workspace of the kernel that PyTorch selects under the current setting.

    Return None if the kernel's workspace is unknown, or if PyTorch copies operands because of their memory
    layout.
    """
    problem = context.the_problem
    kernel = selected_backend(problem, input, weight)
    if kernel not in _WHOLE_BATCH or problem.channels_last or problem.noncontiguous:
        # PyTorch copies operands of other layouts.
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
    # PyTorch copies the slices of one group at a time, computes it, and concatenates the results at the end.
    return Workspace(
        max(forward + image // groups, feature),
        max(backward + (image + feature) // groups, image + filters),
    )


def selected_backend(problem: Problem, input: Any, weight: Any) -> str:
    """Return PyTorch's name for the backend that it selects for a convolution, e.g. "Slow2d", "Mkldnn" or
    "Miopen"."""
    import torch

    taken = torch._C._select_conv_backend(
        input, weight, None, list(problem.stride), list(problem.padding), list(problem.dilation),
        problem.transposed, list(problem.output_padding), problem.groups,
    )  # fmt: skip
    return str(taken).rpartition(".")[2]


def _columns(problem: Problem) -> int:
    """Return the number of values that im2col writes for one sample and one group."""
    channels = problem.out_channels if problem.transposed else problem.in_channels
    windows = prod(problem.input_size if problem.transposed else problem.output_size)
    ones = {*problem.kernel, *problem.stride, *problem.dilation} == {1}
    if ones and not any(problem.padding) and not problem.transposed:
        # The kernel uses the image itself as columns.
        return 0
    return channels // problem.groups * prod(problem.kernel) * windows


CHECKS = (
    Check(
        "memory", "conv", "How much memory does convolution take and keep for backward?", memory,
        EVERY_DIRECTION, exclusive=True, verified=False, seconds=1.5,
    ),
)  # fmt: skip
