"""Check of convolution with images of ordinary size, whose results are compared at samples."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rocmprobe.checks.check import Check, Requires
from rocmprobe.checks.convolution import float_tier, guarantee_of, parts_of, script
from rocmprobe.checks.tools.compare import bad_elements, errors
from rocmprobe.checks.tools.computation import Named, one_thread
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.checks.tools.tensors import leave_poison
from rocmprobe.model.numerics import TRANSFORMS, judge_float, limit
from rocmprobe.model.problems import Problem

if TYPE_CHECKING:
    from torch import Tensor

#: One of so many consecutive elements is a sample.
SEGMENT = 8
#: Number of calls on a GPU, and the seconds after which no further call is made. In three directions, 20
#: calls find a fault of one call in 20 with a probability of 95 %.
_CALLS, _SECONDS = 20, 0.25
#: Maximum number of samples whose operands are gathered at once, to limit memory.
_CHUNK = 1024
#: From this batch size on, PyTorch's own convolution on a CPU uses Winograd and FFT of NNPACK (use_nnpack in
#: aten/src/ATen/native/Convolution.cpp).
_NNPACK_BATCH = 16
_RESULTS = {"fwd": "output", "bwd-data": "input", "bwd-weights": "weight"}


def convolution_at_size(context: CheckContext) -> CheckResult:
    """Compare samples of one direction to fp64 on the CPU, and require that all elements are finite.

    On a GPU, also repeat the call, and compare each result to the first one.

    Each row of each image is cut into segments of 8 pixels, and one random pixel of each segment is a sample,
    in all channels. So every tile with at least 15 pixels in a row contains a sample, e.g. every tile of
    16x16, and a fault of a whole tile is always found. A faulty tile of 8x8 is missed with a probability of
    at most (1/4)^8, below 0.002 %, and a single faulty pixel with 7/8. For weights, the segments are along
    the input channels and taps, with the same samples for every output channel. There, a faulty tile of 8x8
    is missed with a probability of at most 1/4.
    """
    import torch

    problem = replace(context.the_problem, dtype=context.dtype_name)
    if problem.rank != 2 or problem.transposed or problem.groups > 1 or problem.bias:
        raise NotApplicable("only plain 2-d convolution without bias is compared at samples")
    direction, guarantee = context.direction or "fwd", guarantee_of(context)
    if context.backend.device_type == "cpu" and problem.batch >= _NNPACK_BATCH:
        guarantee = TRANSFORMS
    tier, name = float_tier(problem, direction, guarantee), _RESULTS[direction]
    operands = tier.operands(context.dtype, context.seed())
    with one_thread():
        where, expected = sampled_reference(problem, direction, operands, context.seed())
    placed = context.placed(lambda: tier.placed(operands, context.device, context.dtype))
    shape = {"output": problem.output_shape, "input": problem.input_shape, "weight": problem.weight_shape}
    with context.under_setting():
        leave_poison({name: torch.empty(shape[name], device="meta")}, context.dtype, context.device)
    results, seconds = context.first_call(lambda: tier.call(**placed))
    with context.under_setting():
        result = results[name].cpu()
    answer = CheckResult(timings={"first_call": seconds})
    if tuple(result.shape) != shape[name]:
        answer.state = "wrong"
        answer.message = f"{name}: shape {tuple(result.shape)} instead of {shape[name]}"
        return answer
    terms, parts = problem.terms(direction), parts_of(problem, direction, guarantee)
    with one_thread():
        found = result[where].double()
        measured = errors(result[where], expected)
        broken = int((~torch.isfinite(result)).sum())
        holds, numbers, why = judge_float(measured, context.dtype_name, terms, guarantee, parts)
        answer.numerics.update(
            {"of": name, **numbers, "non_finite": broken, "samples": expected.numel(), "owed": guarantee}
        )
        allowed = limit("max_ratio", context.dtype_name, terms, guarantee, parts) * measured.max_reference
        if holds and not broken:
            if context.backend.name != "onednn":
                first = results[name]
                _compare_repetitions(context, lambda: tier.call(**placed)[name], first, 2 * allowed, answer)
            return answer
        # Do not use `error > ...`, because NaN would then count as correct.
        bad = torch.zeros(result.shape, dtype=torch.bool)
        bad[where] = ~((found - expected).abs() <= allowed)
        reference = result.double().nan_to_num(0.0, 0.0, 0.0)
        reference[where] = expected
        if broken:
            why = f"{broken} of {result.numel()} elements are not finite"
        numbers, answer.evidence = bad_elements(name, result, reference, bad | ~torch.isfinite(result))
    answer.numerics.update(numbers)
    answer.numerics["bad_share"] = float(bad[where].double().mean())
    answer.evidence[:0] = [f"{int(bad.sum())} of {expected.numel()} samples are wrong"]
    answer.state, answer.message = "wrong", f"{name}: {why}"
    return answer


def _compare_repetitions(
    context: CheckContext, call: Callable[[], Tensor], first: Tensor, allowed: float, answer: CheckResult
) -> None:
    """Repeat ``call``. Make ``answer`` wrong if a result differs from ``first`` by more than ``allowed``."""
    import torch

    ends = time.monotonic() + _SECONDS
    calls = 1
    while calls < _CALLS and time.monotonic() < ends:
        calls += 1
        again, _ = context.steady_call(call)
        # A solver that adds in any order gives other bits.
        if not torch.equal(again, first) and not bool(((again - first).abs() <= allowed).all()):
            answer.state, answer.message = "wrong", f"call {calls} differs from the first"
            break
    answer.numerics["calls"] = calls


def sampled_reference(
    problem: Problem, direction: str, operands: Named, seed: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return the indices of the samples in the result, and the expected values there, in fp64.

    Both have a row for each sample of the last dimensions and a column for each channel.
    """
    if direction == "bwd-weights":
        return _weights(problem, operands["input"], operands["grad"], seed)
    return _images(problem, direction, operands, seed)


def _images(
    problem: Problem, direction: str, operands: Named, seed: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return samples of the output, or of the gradient of the input."""
    import torch

    weight = operands["weight"]
    if direction == "fwd":
        source, size, channels = operands["input"], problem.output_size, problem.out_channels
        matrix = weight.permute(2, 3, 1, 0)
    else:
        source, size, channels = operands["grad"], problem.input_size, problem.in_channels
        matrix = weight.permute(2, 3, 0, 1)
    matrix = matrix.reshape(-1, channels)
    image, row, segment = _grid(problem.batch, size[0], -(-size[1] // SEGMENT))
    column = _drawn_in(segment, size[1], seed)
    positions = [_read(problem, direction, axis, place) for axis, place in enumerate((row, column))]
    (rows, in_rows), (columns, in_columns) = positions
    last = source.movedim(1, -1).contiguous()
    expected = []
    for at in range(0, len(image), _CHUNK):
        part = slice(at, at + _CHUNK)
        inside = in_rows[part][:, :, None] & in_columns[part][:, None, :]
        patches = last[image[part][:, None, None], rows[part][:, :, None], columns[part][:, None, :]]
        patches = patches * inside[..., None]
        expected.append(patches.flatten(1) @ matrix)
    every = torch.arange(channels)[None]
    return (image[:, None], every, row[:, None], column[:, None]), torch.cat(expected)


def _read(problem: Problem, direction: str, axis: int, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for each place and filter tap, where the source is read, and a mask of valid reads."""
    import torch

    stride, padding, dilation = problem.stride[axis], problem.padding[axis], problem.dilation[axis]
    taps = torch.arange(problem.kernel[axis])[None] * dilation
    if direction == "fwd":
        read, size = places[:, None] * stride - padding + taps, problem.input_size[axis]
        valid = (read >= 0) & (read < size)
    else:
        shifted, size = places[:, None] + padding - taps, problem.output_size[axis]
        read = torch.div(shifted, stride, rounding_mode="floor")
        valid = (read * stride == shifted) & (read >= 0) & (read < size)
    return read.clamp(0, size - 1), valid


def _weights(problem: Problem, source: Tensor, grad: Tensor, seed: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return samples of the gradient of the weights."""
    import torch
    import torch.nn.functional as F

    height, width = problem.kernel
    elements = problem.in_channels * height * width
    (segment,) = _grid(-(-elements // SEGMENT))
    place = _drawn_in(segment, elements, seed)
    channel = torch.div(place, height * width, rounding_mode="floor")
    row = torch.div(place, width, rounding_mode="floor") % height
    column = place % width
    padded = F.pad(source, (problem.padding[1], problem.padding[1], problem.padding[0], problem.padding[0]))
    (down, across), (rows, columns) = problem.stride, problem.output_size
    read = []
    for c, r, s in zip(channel.tolist(), row.tolist(), column.tolist()):
        top, left = r * problem.dilation[0], s * problem.dilation[1]
        shifted = padded[:, c, top : top + down * rows : down, left : left + across * columns : across]
        read.append(shifted[:, :rows, :columns].flatten())
    expected = torch.stack(read) @ grad.movedim(1, 0).flatten(1).T
    every = torch.arange(problem.out_channels)[None]
    return (every, channel[:, None], row[:, None], column[:, None]), expected


def _grid(*sizes: int) -> list[Tensor]:
    """Return the indices of all elements of a tensor with ``sizes``, by dimension."""
    import torch

    numbers = torch.arange(torch.Size(sizes).numel())
    found = []
    for size in reversed(sizes):
        found.append(numbers % size)
        numbers = torch.div(numbers, size, rounding_mode="floor")
    return found[::-1]


def _drawn_in(segment: Tensor, size: int, seed: int) -> Tensor:
    """Return a random place in each segment of ``SEGMENT`` elements of a row with ``size`` elements."""
    import torch

    first = segment * SEGMENT
    lengths = (size - first).clamp(max=SEGMENT)
    draws = torch.rand(len(segment), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return first + (draws * lengths).long()


CHECKS = (
    Check(
        name="convolution-at-size",
        rung="conv",
        question="Is convolution correct for images of ordinary size?",
        function=convolution_at_size,
        requires=Requires(("elementwise",), outside=("gemm",), convolution="own"),
        script=script,
        seconds=0.2,
    ),
)
