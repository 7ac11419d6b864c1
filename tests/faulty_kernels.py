"""Faulty kernels, which compute the wrong results of the bugs in ``planted_bugs.py``.

In comments, the *image* is the padded tensor: the input, or the output of a transposed convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, Optional, Union

import torch
import torch.nn.functional as F
from accumulation import accumulated, at

from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.checks.tools.compare import index_of
from rocmprobe.model.problems import Problem
from rocmprobe.simulate.kernels import problem_of, to_fp32

Call = Union[ConvolutionCall, BackwardCall]
Compute = Callable[[Any], torch.Tensor]
_TILE = 16
_BACKWARD = ("bwd-data", "bwd-weights")


class KernelBug:
    """A bug of a library. ``name`` identifies the bug."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left: dict[Any, torch.Tensor] = {}
        # Some errors are at random positions. A fixed seed makes runs repeatable.
        self._generator = torch.Generator().manual_seed(0)

    def output(self, call: ConvolutionCall, compute: Compute) -> torch.Tensor:
        """Return the faulty output of ``call``."""
        return self._result("fwd", call, compute)

    def gradients(
        self, call: BackwardCall, directions: tuple[str, ...], compute: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        """Return the gradients of ``call``, with wrong values for ``directions``."""
        faulty: dict[int, torch.Tensor] = {}
        for index, direction in enumerate(_BACKWARD):
            if direction in directions and call.output_mask[index]:

                def one(call: BackwardCall, index: int = index) -> torch.Tensor:
                    gradient = compute(call)[index]
                    assert gradient is not None, "the output mask requests this gradient"
                    return gradient

                mask = index == 0, index == 1, False
                faulty[index] = self._result(direction, replace(call, output_mask=mask), one)
        data, weight, bias = (wanted and index not in faulty for index, wanted in enumerate(call.output_mask))
        right: Gradients = (None, None, None)
        if data or weight or bias:
            right = compute(replace(call, output_mask=(data, weight, bias)))
        if bias and "bwd-weights" in directions:
            assert right[2] is not None, "the output mask requests this gradient"
            faulty[2] = self._bias_gradient(call, right[2])
        return faulty.get(0, right[0]), faulty.get(1, right[1]), faulty.get(2, right[2])

    def _result(self, direction: str, call: Call, compute: Compute) -> torch.Tensor:
        if not call.input.numel():
            return compute(call)
        if self._name in _FAULTY_CALLS:
            return _FAULTY_CALLS[self._name](call, direction, compute)
        right = compute(call)
        if self._name in _SPOILED:
            return _SPOILED[self._name](right.clone(), direction)
        if self._name in ("stale-buffer", "uncleared-result"):
            return self._with_what_was_left(direction, right)
        if self._name == "random-element":
            return self._with_a_random_element(right.clone())
        return right

    def _with_what_was_left(self, direction: str, right: torch.Tensor) -> torch.Tensor:
        form = (direction, right.shape, right.dtype)
        left = self._left.get(form)
        if self._name == "stale-buffer":
            self._left[form] = right
            return right if left is None else left.clone()
        self._left[form] = right if left is None else right + left
        return self._left[form].clone()

    def _with_a_random_element(self, result: torch.Tensor) -> torch.Tensor:
        where = torch.randint(result.numel(), (), generator=self._generator)
        size = result.double().square().mean().sqrt()
        # Compute the index, because a channels-last result has no flat view.
        place = tuple(index_of(int(where), result.shape))
        result[place] += size.to(result.dtype)
        return result

    def _bias_gradient(self, call: BackwardCall, right: torch.Tensor) -> torch.Tensor:
        if self._name == "doubled-channel":
            return _doubled_channel(right.clone(), "bwd-weights")
        if self._name == "bias-gradient":
            grad: torch.Tensor = to_fp32(call.grad_output).clone()
            grad[-1][at([-1] * (grad.dim() - 2))] = 0
            return grad.sum([0, *range(2, grad.dim())]).to(right.dtype)
        return right


def reads(problem: Problem, axis: int, dilation: Optional[int] = None) -> frozenset[tuple[int, int, int]]:
    """Return (filter position, tap, pixel) for each pixel that a filter reads along one axis.

    Pixels in the padding are left out. ``dilation`` overrides the dilation of the problem.
    """
    image, positions = problem.input_size[axis], problem.output_size[axis]
    if problem.transposed:
        image, positions = positions, image
    step = problem.dilation[axis] if dilation is None else dilation
    return frozenset(
        (position, tap, pixel)
        for position, tap in product(range(positions), range(problem.kernel[axis]))
        for pixel in [position * problem.stride[axis] - problem.padding[axis] + tap * step]
        if 0 <= pixel < image
    )


def clamped_axis(problem: Problem) -> Optional[int]:
    """Return the last spatial axis that has padding, or None."""
    return max((axis for axis, padding in enumerate(problem.padding) if padding), default=None)


def pixels_not_read(problem: Problem, axis: int) -> frozenset[int]:
    """Return the pixels along one axis of the image that the filter does not read."""
    image = problem.output_size if problem.transposed else problem.input_size
    return frozenset(range(image[axis])) - {pixel for _, _, pixel in reads(problem, axis)}


def has_equal_channels(problem: Problem) -> bool:
    """Return True if there are as many input as output channels, and at least two of each per group."""
    return problem.in_channels == problem.out_channels > problem.groups


def _with(call: Any, name: str, tensor: torch.Tensor) -> Any:
    return replace(call, **{name: tensor})


def _channels_last(call: Call) -> bool:
    operands = (call.input, call.grad_output) if isinstance(call, BackwardCall) else (call.input,)
    return call.input.dim() == 4 and all(
        each.is_contiguous(memory_format=torch.channels_last) and not each.is_contiguous()
        for each in operands
    )


def _doubled_channel(result: torch.Tensor, direction: str) -> torch.Tensor:
    result.select(1 if result.dim() > 1 else 0, 0).mul_(2)
    return result


def _zeroed_row(result: torch.Tensor, direction: str) -> torch.Tensor:
    result.select(0 if direction == "bwd-weights" else 1, -1).zero_()
    return result


def _doubled_tile(result: torch.Tensor, direction: str) -> torch.Tensor:
    first = max(0, (result.numel() - _TILE) // 2)
    for flat in range(first, min(first + _TILE, result.numel())):
        result[tuple(index_of(flat, result.shape))] *= 2
    return result


def _nan_lane(result: torch.Tensor, direction: str) -> torch.Tensor:
    result[tuple(index_of(result.numel() // 2, result.shape))] = float("nan")
    return result


def _lost_term(call: Call, direction: str, compute: Compute) -> torch.Tensor:
    problem = problem_of(call)
    axes = [reads(problem, axis) for axis in range(problem.rank)]
    if not all(axes):
        # The filter reads only padding, so no sum has a term that could be lost.
        return compute(call)
    if direction == "bwd-weights":
        # Each element of the result is a sum of products of the image and the tensor ``name``. A zero in this
        # tensor removes one product from the sum.
        name = "input" if call.transposed else "grad_output"
        without = getattr(call, name).clone()
        without[-1][at(max(position for position, _, _ in axis) for axis in axes)] = 0
        return compute(_with(call, name, without))
    weight, groups = _grouped(call)
    # Depending on the direction, the sum runs along the first or the second axis of the weights.
    channels = groups.select(2 if (direction == "fwd") != call.transposed else 1, -1)
    channels[at(max(tap for _, tap, _ in axis) for axis in axes)] = 0
    return compute(replace(call, weight=weight))


def _grouped(call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a copy of the weights, and a view of this copy with a first axis for the groups."""
    weight = call.weight.clone(memory_format=torch.contiguous_format)
    return weight, weight.view(call.groups, -1, *weight.shape[1:])


def _transposed_weights(call: Call, direction: str, compute: Compute) -> torch.Tensor:
    problem = problem_of(call)
    axes = (0, 1) if has_equal_channels(problem) else (-2, -1)
    if not has_equal_channels(problem) and (problem.rank < 2 or problem.kernel[-1] != problem.kernel[-2]):
        return compute(call)
    if direction != "bwd-weights":
        weight, groups = _grouped(call)
        groups[-1] = groups[-1].transpose(*axes).clone()
        return compute(replace(call, weight=weight))
    result = compute(call).contiguous()
    groups = result.view(call.groups, -1, *result.shape[1:])
    groups[-1] = groups[-1].transpose(*axes).clone()
    return result


def _mixed_up_layout(call: Call, direction: str, compute: Compute) -> torch.Tensor:
    if not _channels_last(call):
        return compute(call)
    name = "grad_output" if direction == "bwd-data" else "input"
    right = getattr(call, name)
    return compute(_with(call, name, right.permute(0, 2, 3, 1).reshape(right.shape)))


def _reduced_precision(call: Call, direction: str, compute: Compute) -> torch.Tensor:
    for name in ("input", "weight", "grad_output"):
        if hasattr(call, name):
            call = _with(call, name, _reduced(getattr(call, name)))
    return compute(call)


def _reduced(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype == torch.float32:
        # TF32 keeps 10 of fp32's 23 mantissa bits. Round by adding half of the last kept bit, then truncate.
        bits = tensor.contiguous().view(torch.int32) + (1 << 12)
        return (bits & -(1 << 13)).view(torch.float32)
    return tensor.to(torch.float32 if tensor.dtype == torch.float64 else torch.bfloat16).to(tensor.dtype)


def _untouched_output(call: Call, direction: str, compute: Compute) -> torch.Tensor:
    problem = problem_of(call)
    shapes = {"fwd": problem.output_shape, "bwd-data": problem.input_shape}
    shape = shapes.get(direction, problem.weight_shape)
    return torch.empty(shape, dtype=call.input.dtype, device=call.input.device)


def _unwritten_gaps(call: Call, direction: str, compute: Compute) -> torch.Tensor:
    if direction != ("fwd" if call.transposed else "bwd-data"):
        return compute(call)
    result, problem = compute(call).clone(), problem_of(call)
    for axis in range(problem.rank):
        gaps = torch.tensor(sorted(pixels_not_read(problem, axis)), dtype=torch.long, device=result.device)
        result.index_fill_(2 + axis, gaps, 1)
    return result


def _half_accumulation(call: Call, direction: str, compute: Compute) -> torch.Tensor:
    halves = (torch.float16, torch.bfloat16)
    return accumulated(call, direction) if call.input.dtype in halves else compute(call)


def _wrong_padding_edge(call: Call, direction: str, compute: Compute) -> torch.Tensor:
    clamped = clamped_axis(problem_of(call))
    if clamped is None:
        return compute(call)
    return _read_by_hand(call, direction, compute, call.dilation, clamped)


def _swapped_dilation(call: Call, direction: str, compute: Compute) -> torch.Tensor:
    if call.dilation == call.dilation[::-1]:
        return compute(call)
    return _read_by_hand(call, direction, compute, call.dilation[::-1], None)


def _read_by_hand(
    call: Call, direction: str, compute: Compute, dilation: tuple[int, ...], clamped: Optional[int]
) -> torch.Tensor:
    """Return the result of a kernel that reads the wrong pixels of the image.

    The kernel uses ``dilation``. Along the axis ``clamped``, the padding before the image repeats the first
    pixel.
    """
    problem = problem_of(call)
    image, positions = problem.input_size, problem.output_size
    if problem.transposed:
        image, positions = positions, image
    edges = []
    for axis in range(problem.rank):
        reach = (positions[axis] - 1) * problem.stride[axis] + dilation[axis] * (problem.kernel[axis] - 1) + 1
        edges.append((problem.padding[axis], reach - image[axis] - problem.padding[axis]))
    none = (0,) * problem.rank
    plain = replace(call, padding=none, output_padding=none, dilation=dilation)
    if direction != "bwd-weights" and (direction == "fwd") == call.transposed:
        return _adjoint(plain, compute, edges, clamped)
    name = "grad_output" if call.transposed else "input"
    return compute(_with(plain, name, _padded(getattr(call, name), edges, clamped)))


def _padded(image: torch.Tensor, edges: list[tuple[int, int]], clamped: Optional[int]) -> torch.Tensor:
    if clamped is not None:
        dim = 2 + clamped
        first = image.narrow(dim, 0, 1)
        image = torch.cat([first] * edges[clamped][0] + [image], dim)
    return _fitted(image, _flat(edges, clamped))


def _adjoint(
    call: Call, compute: Compute, edges: list[tuple[int, int]], clamped: Optional[int]
) -> torch.Tensor:
    """Compute ``call``, which has no padding, and crop the result by ``edges``, e.g. [(1, 1), (1, 1)].

    Along the axis ``clamped``, add the pixels cropped at the start to the first pixel that remains.
    """
    bias = None
    if isinstance(call, ConvolutionCall):
        bias, call = call.bias, replace(call, bias=None)
    else:
        call = replace(call, input=_padded(call.input, edges, None))
    image = _fitted(compute(call), [-pixels for pixels in _flat(edges, clamped)])
    if clamped is not None:
        dim, padding = 2 + clamped, edges[clamped][0]
        outside = image.narrow(dim, 0, padding).sum(dim, keepdim=True)
        image = image.narrow(dim, padding, image.shape[dim] - padding).clone()
        image.narrow(dim, 0, 1).add_(outside)
    return image if bias is None else image + bias.view(-1, *[1] * (image.dim() - 2))


def _fitted(image: torch.Tensor, edges: list[int]) -> torch.Tensor:
    padded = F.pad(image, [max(pixels, 0) for pixels in edges])
    return F.pad(padded, [min(pixels, 0) for pixels in edges])


def _flat(edges: list[tuple[int, int]], clamped: Optional[int]) -> list[int]:
    flat: list[int] = []
    for axis in reversed(range(len(edges))):
        before, behind = edges[axis]
        flat += [0 if axis == clamped else before, behind]
    return flat


_SPOILED: Mapping[str, Callable[[torch.Tensor, str], torch.Tensor]] = {
    "doubled-channel": _doubled_channel, "zeroed-row": _zeroed_row, "doubled-tile": _doubled_tile,
    "nan-lane": _nan_lane,
}  # fmt: skip
_FAULTY_CALLS: Mapping[str, Callable[[Any, str, Compute], torch.Tensor]] = {
    "lost-term": _lost_term, "transposed-weights": _transposed_weights, "mixed-up-layout": _mixed_up_layout,
    "reduced-precision": _reduced_precision, "untouched-output": _untouched_output,
    "unwritten-gaps": _unwritten_gaps, "half-accumulation": _half_accumulation,
    "wrong-padding-edge": _wrong_padding_edge, "swapped-dilation": _swapped_dilation,
}  # fmt: skip
