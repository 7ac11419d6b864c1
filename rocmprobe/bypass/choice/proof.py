"""Proof of a plan: an exact result on integer operands, on the device that will use the plan.

The result is compared with a convolution on the CPU. To save time, this convolution has one filter per
group: the weighted sum of all filters (or of all channels, for the image's gradient). Because convolution is
linear, the result's channels must have the same weighted sum.
"""

from __future__ import annotations

from math import sqrt
from typing import Callable, Optional

import torch

from rocmprobe.bypass.algorithms import Task
from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall
from rocmprobe.bypass.dispatch import native_backward, native_convolution
from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, output_sizes

#: Device types on which plans must be proved.
DEVICE_TYPES = {"cuda"}
#: Standard deviation of the sums, for fp32 and for half precision. Larger sums would not be exact.
_SPREAD = (1000.0, 20.0)
_SEED = 57

Run = Callable[[torch.Tensor, torch.Tensor, Optional[torch.Tensor], torch.Tensor], None]


def fault(
    task: Task,
    run: Run,
    image: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor],
    feature: torch.Tensor,
) -> str:
    """Run a plan on integers, and return an error message, or "" if the result is exact.

    ``run`` computes ``task`` for (image, weight, bias, feature). The other tensors have the sizes and memory
    layout of the operands, and are not changed.
    """
    generator = torch.Generator().manual_seed(_SEED)
    plain = task.plain
    terms = {
        FWD: plain.depth,
        BWD_DATA: plain.filters // plain.groups * plain.taps,
        BWD_WEIGHTS: plain.batch * feature[0, 0].numel(),
    }[task.direction]
    spread = _SPREAD[task.half]
    density = min(1.0, spread / sqrt(terms))

    def integers(like: torch.Tensor) -> torch.Tensor:
        signs = torch.randint(0, 2, like.shape, generator=generator).mul_(2).sub_(1)
        kept = torch.rand(like.shape, generator=generator) < density
        return signs.mul_(kept).to(torch.float32)

    on_cpu = [integers(each) for each in (image, weight, feature)]
    operands = [
        torch.empty_like(like, memory_format=torch.preserve_format).copy_(values)
        for like, values in zip((image, weight, feature), on_cpu)
    ]
    result = {FWD: 2, BWD_DATA: 0, BWD_WEIGHTS: 1}[task.direction]
    # NaN stays in every element that the plan does not write.
    operands[result].fill_(float("nan"))
    small = None if bias is None else integers(bias)
    run(operands[0], operands[1], None if bias is None or small is None else small.to(bias), operands[2])
    found = operands[result].to("cpu", torch.float32)
    return _compared(task, found, on_cpu[0], on_cpu[1], on_cpu[2], small)


def _compared(
    task: Task,
    found: torch.Tensor,
    image: torch.Tensor,
    weight: torch.Tensor,
    feature: torch.Tensor,
    bias: Optional[torch.Tensor],
) -> str:
    """Compare the weighted channel sums of ``found``, and return an error message, or ""."""
    plain = task.plain
    groups, zeros = plain.groups, [0] * len(plain.kernel)
    lists = [list(each) for each in (plain.stride, plain.padding, plain.dilation)]

    def summed(tensor: torch.Tensor, channels: int) -> torch.Tensor:
        """Sum the channels of each group in the first dimension."""
        factors = 1.0 + torch.arange(channels).remainder(7)
        grouped = tensor.reshape(groups, channels, *tensor.shape[1:])
        return (grouped * factors.view(-1, *(1 for _ in tensor.shape[1:]))).sum(1)

    def of_samples(tensor: torch.Tensor, channels: int) -> torch.Tensor:
        return summed(tensor.transpose(0, 1), channels).transpose(0, 1)

    def native(input: torch.Tensor, weight: torch.Tensor, transposed: bool, extra: list[int]) -> torch.Tensor:
        call = ConvolutionCall.of((input, weight, None, *lists, transposed, extra, groups))
        return native_convolution(call)

    filters, channels = plain.filters // groups, plain.channels // groups
    if task.direction == FWD:
        expected = native(image, summed(weight, filters), False, zeros)
        # The feature can have fewer windows than fit into the image.
        for dimension, size in enumerate(plain.feature, 2):
            expected = expected.narrow(dimension, 0, size)
        got, shift = of_samples(found, filters), bias if bias is None else summed(bias, filters)
    else:
        sizes = output_sizes(
            plain.feature, plain.kernel, stride=plain.stride, padding=plain.padding, dilation=plain.dilation,
            transposed=True,
        )  # fmt: skip
        extra = [size - least for size, least in zip(plain.image, sizes)]
        if task.direction == BWD_DATA:
            by_group = weight.reshape(plain.filters, 1, channels, *plain.kernel)
            factors = 1.0 + torch.arange(channels).remainder(7)
            one = (by_group * factors.view(-1, *(1 for _ in plain.kernel))).sum(2)
            expected = native(feature, one, True, extra)
            got, shift = of_samples(found, channels), bias if bias is None else summed(bias, channels)
        else:
            source, shift = of_samples(feature, filters), None
            like = weight.new_empty((groups, *weight.shape[1:]))
            arguments = (image, source, like, None, *lists, True, extra, groups, [False, True, False])
            gradient = native_backward(BackwardCall.of(arguments))[1]
            assert gradient is not None
            expected = gradient
            got = summed(found, filters)
    if shift is not None:
        expected = expected + shift.view(-1, *(1 for _ in plain.kernel))
    wrong = int((got != expected).sum())
    return f"{wrong} of {expected.numel()} sums of its result on integers are wrong" if wrong else ""
