"""What a convolution allocates above its operands and results, as far as it can be predicted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, Optional

from rocmprobe.model.problems import Problem
from rocmprobe.worker.ask import Ask

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


@dataclass(frozen=True)
class Workspace:
    """Upper bounds in bytes: above input, weight and output in ``forward``; above the gradients, too, in
    ``backward``."""

    forward: int
    backward: int


def of_bypass(ask: Ask, taken: set[str]) -> Optional[Workspace]:
    """What the algorithms that the bypass took say of themselves; None for operands with gaps, which they
    copy first."""
    from rocmprobe import bypass

    problem = replace(ask.the_problem, dtype=ask.dtype_name)
    if problem.noncontiguous:
        return None
    explained = bypass.explain(problem, ask.backend.device_type)

    def most(*directions: str) -> int:
        plans = [plan for each in directions for plan in explained[each].alternatives]
        return max((plan.workspace_bytes for plan in plans if plan.algorithm in taken), default=0)

    return Workspace(most("fwd"), most("bwd-data", "bwd-weights"))


def of_pytorch(ask: Ask, input: Any, weight: Any) -> Optional[Workspace]:
    """What PyTorch's own kernels allocate where it takes them under the setting that holds now; None where a
    library is taken, which does not report it."""
    problem = ask.the_problem
    kernel = taken_kernel(problem, input, weight)
    if kernel not in _WHOLE_BATCH or problem.channels_last or problem.noncontiguous:
        # In other layouts there are copies besides.
        return None
    size = input.element_size()
    image, filters = size * prod(problem.input_shape), size * prod(problem.weight_shape)
    feature = size * prod(problem.output_shape)
    forward, backward = (
        (problem.batch if whole and ask.backend.device_type == "cpu" else 1) * size * _columns(problem)
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
