"""Inputs and references of a convolution problem, and running one direction of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Optional

from rocmprobe.checks.tools.context import CheckContext
from rocmprobe.model.numerics import CancellingFill, ExactFill
from rocmprobe.model.problems import Problem

#: Multiplications and additions of a reference that more than one thread computes.
_WORTH_THREADS = 500_000_000


@dataclass
class Tensors:
    """Operands of one problem: input, weight, bias (or None) and the gradient of the output."""

    input: Any
    weight: Any
    bias: Optional[Any]
    grad: Any

    def to(self, device: str, dtype: Any, problem: Optional[Problem] = None) -> Tensors:
        """The same operands on ``device``, laid out as ``problem`` has them; packed where there is none."""
        import torch

        def moved(tensor: Any) -> Any:
            tensor = tensor.to(device, dtype)
            if problem is not None and problem.channels_last:
                return tensor.contiguous(memory_format=torch.channels_last)
            if problem is not None and problem.noncontiguous:
                # The gaps hold NaN, so that who reads them is seen.
                return torch.stack((tensor, torch.full_like(tensor, float("nan"))), -1)[..., 0]
            return tensor

        bias = None if self.bias is None else self.bias.to(device, dtype)
        return Tensors(moved(self.input), moved(self.weight), bias, moved(self.grad))


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread in the block, or in the function that this decorates.

    PyTorch's threads wait for each other after every small step: on a busy machine, most of the time.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@one_thread()
def uniform(problem: Problem, dtype: Any, seed: int) -> Tensors:
    """Operands uniform in [-1, 1), rounded to ``dtype`` and held as fp64 on the CPU."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def values(shape: tuple[int, ...]) -> Any:
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
        return drawn.to(dtype).to(torch.float64)

    bias = values((problem.out_channels,)) if problem.bias else None
    return Tensors(
        values(problem.input_shape), values(problem.weight_shape), bias, values(problem.output_shape)
    )


@one_thread()
def integers(problem: Problem, direction: str, fill: ExactFill, seed: int) -> Tensors:
    """Integer operands for the exact tier, as fp64 on the CPU; the sparse operand is the one that
    ``direction`` sums over."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def values(shape: tuple[int, ...], density: float = 1.0) -> Any:
        return whole_numbers(shape, fill.largest, density, generator)

    sparse_grad = direction == "bwd-data"
    bias = values((problem.out_channels,)) if problem.bias else None
    return Tensors(
        values(problem.input_shape, 1.0 if sparse_grad else fill.density),
        values(problem.weight_shape),
        bias,
        values(problem.output_shape, fill.density if sparse_grad else 1.0),
    )


@one_thread()
def cancelling(problem: Problem, direction: str, fill: CancellingFill, seed: int) -> Tensors:
    """Integer operands whose products are large and whose sums are small, as fp64 on the CPU.

    At the edges, where padding takes terms away, the base need not cancel: there sums are large, too.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)

    def based(shape: tuple[int, ...]) -> Any:
        return fill.base + whole_numbers(shape, 1, fill.density, generator)

    def values(shape: tuple[int, ...]) -> Any:
        return whole_numbers(shape, fill.largest, 1.0, generator)

    bias = values((problem.out_channels,)) if problem.bias else None
    image, weight = based(problem.input_shape), values(problem.weight_shape)
    if direction == "bwd-weights":
        # Over the batch, so that it cancels at the edges, too; of one sample, over all positions.
        grad = _summing_to_zero(values(problem.output_shape), 0, problem.rank)
        return Tensors(image, weight, bias, grad)
    if (direction == "fwd") != problem.transposed:
        weight = _summing_to_zero(weight, 1, problem.rank)
    else:
        grouped = weight.unflatten(0, (problem.groups, -1))
        weight = _summing_to_zero(grouped, 1, problem.rank).flatten(0, 1)
    return Tensors(image, weight, bias, based(problem.output_shape))


def _summing_to_zero(values: Any, dimension: int, rank: int) -> Any:
    """``values`` less themselves in reverse along ``dimension``; where that has one element, along the last
    ``rank`` dimensions, which are those of space."""
    reversed_along = [dimension] if values.shape[dimension] > 1 else list(range(-rank, 0))
    return values - values.flip(reversed_along)


def leave_poison(results: Mapping[str, Any], dtype: Any, device: str) -> None:
    """Fill memory of the size of ``results`` with NaN and give it back: an allocator reuses it for the next
    request of that size, and a kernel that does not write its result leaves them there.

    Twice, since the first time the C library maps large blocks apart and gives them back to the system.
    """
    import torch

    for _ in range(2):
        held = [torch.full(each.shape, float("nan"), dtype=dtype, device=device) for each in results.values()]
        del held


@one_thread()
def magnitudes(tensors: Tensors) -> Tensors:
    """The absolute values of all operands."""
    bias = None if tensors.bias is None else tensors.bias.abs()
    return Tensors(tensors.input.abs(), tensors.weight.abs(), bias, tensors.grad.abs())


def whole_numbers(shape: tuple[int, ...], largest: int, density: float, generator: Any) -> Any:
    """Return fp64 integers of magnitude 1 to ``largest``. A share of ``1 - density`` is zero."""
    import torch

    values = torch.empty(shape, dtype=torch.float64).random_(-largest, largest, generator=generator)
    # Zero and above move up by one, so that no zero is left.
    values += values >= 0
    if density < 1:
        values *= torch.rand(shape, generator=generator) < density
    return values


def reference(problem: Problem, direction: str, operands: Tensors) -> dict[str, Any]:
    """Return ``run`` of operands in fp64 on the CPU. Small problems use one thread."""
    with nullcontext() if problem.flops > _WORTH_THREADS else one_thread():
        return run(problem, direction, operands)


def run(problem: Problem, direction: str, tensors: Tensors) -> dict[str, Any]:
    """Compute one direction where the tensors live; results by name ("output", "input", "weight", "bias").

    The backward directions call ``aten::convolution_backward`` itself, so that each is judged alone,
    without a forward that may fail first.
    """
    import torch
    import torch.nn.functional as F

    if direction == "fwd":
        function = getattr(F, problem.kind)
        common = {"bias": tensors.bias, "stride": problem.stride, "padding": problem.padding}
        if problem.transposed:
            common["output_padding"] = problem.output_padding
        output = function(
            tensors.input, tensors.weight, groups=problem.groups, dilation=problem.dilation, **common
        )
        return {"output": output}
    data = direction == "bwd-data"
    with_bias = problem.bias and not data
    grads = torch.ops.aten.convolution_backward(
        tensors.grad, tensors.input, tensors.weight, [problem.out_channels] if with_bias else None,
        problem.stride, problem.padding, problem.dilation, problem.transposed, problem.output_padding,
        problem.groups, [data, not data, with_bias],
    )  # fmt: skip
    named = dict(zip(("input", "weight", "bias"), grads))
    return {name: grad for name, grad in named.items() if grad is not None and grad.numel()}


def operands_on_device(context: CheckContext) -> Tensors:
    """Uniform operands of the requested problem, in its dtype and memory format."""
    problem = context.the_problem
    operands = uniform(problem, context.dtype, context.seed())
    placed: Tensors = context.placed(lambda: operands.to(context.device, context.dtype, problem))
    return placed
