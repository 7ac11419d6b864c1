"""Operands of convolution problems, and functions that compute one direction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Optional

from rocmprobe.checks.tools.computation import Named, channels_last, one_thread, uniform, with_gaps
from rocmprobe.checks.tools.context import CheckContext
from rocmprobe.model.problems import Problem

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass
class Tensors:
    """Operands of a convolution (``bias`` can be None), and the gradient of the output."""

    input: Tensor
    weight: Tensor
    bias: Optional[Tensor]
    grad: Tensor

    def to(self, device: str, dtype: torch.dtype, problem: Optional[Problem] = None) -> Tensors:
        """Return the operands on ``device`` in ``dtype``, in the memory format of ``problem`` if given."""
        change = layout(problem) if problem else None

        def moved(tensor: Tensor) -> Tensor:
            tensor = tensor.to(device, dtype)
            return change(tensor) if change else tensor

        bias = None if self.bias is None else moved(self.bias)
        return Tensors(moved(self.input), moved(self.weight), bias, moved(self.grad))

    def operands(self, direction: str) -> Named:
        """Return the operands of ``direction`` by name."""
        return {name: tensor for name, tensor in vars(self).items() if name != "grad" or direction != "fwd"}


def layout(problem: Problem) -> Optional[Callable[[Tensor], Tensor]]:
    """Return the function that changes a tensor to the problem's memory format, or None if contiguous."""
    if problem.channels_last:
        return channels_last
    return with_gaps if problem.noncontiguous else None


def shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the operands by name, in the order of drawing."""
    bias = {"bias": (problem.out_channels,)} if problem.bias else {}
    return {
        **bias,
        "input": problem.input_shape,
        "weight": problem.weight_shape,
        "grad": problem.output_shape,
    }


@one_thread()
def problem_operands(problem: Problem, dtype: torch.dtype, seed: int) -> Tensors:
    """Draw operands uniform in [-1, 1), rounded to ``dtype``, as fp64 on the CPU."""
    drawn = uniform(shapes(problem), dtype, seed)
    return Tensors(drawn["input"], drawn["weight"], drawn.get("bias"), drawn["grad"])


def leave_poison(results: Mapping[str, Tensor], dtype: torch.dtype, device: str) -> None:
    """Fill memory of the same sizes as ``results`` with NaN, and free it.

    Later results in this memory then contain NaN where a kernel writes nothing.
    """
    import torch

    # Fill twice, because the C library returns a large block to the system when the block is freed for the
    # first time.
    for _ in range(2):
        held = [
            torch.full(result.shape, float("nan"), dtype=dtype, device=device) for result in results.values()
        ]
        del held


def forward(
    kind: str, input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, **geometry: Any
) -> Named:
    """Compute a convolution."""
    import torch

    return {"output": getattr(torch.nn.functional, kind)(input, weight, bias, **geometry)}


def backward(
    grad: Tensor, input: Tensor, weight: Tensor, bias: Optional[Tensor] = None, **geometry: Any
) -> Named:
    """Compute a convolution's gradients. ``geometry["output_mask"]`` selects input, weight and bias."""
    import torch

    # Run no forward pass, because its failure would hide the result of the backward pass.
    gradients = torch.ops.aten.convolution_backward(grad, input, weight, **geometry)
    wanted = zip(("input", "weight", "bias"), geometry["output_mask"], gradients)
    return {name: gradient for name, selected, gradient in wanted if selected}


def call_of(problem: Problem, direction: str) -> partial[Named]:
    """Return a function of the operands that computes one direction."""
    geometry: dict[str, Any] = {
        "stride": problem.stride,
        "padding": problem.padding,
        "dilation": problem.dilation,
        "groups": problem.groups,
    }
    if direction == "fwd":
        if problem.transposed:
            geometry["output_padding"] = problem.output_padding
        return partial(forward, kind=problem.kind, **geometry)
    data = direction == "bwd-data"
    bias = problem.bias and not data
    return partial(
        backward,
        bias_sizes=[problem.out_channels] if bias else None,
        **geometry,
        transposed=problem.transposed,
        output_padding=problem.output_padding,
        output_mask=[data, not data, bias],
    )


def run(problem: Problem, direction: str, tensors: Tensors) -> Named:
    """Compute one direction, and return the results by name ("output", "input", "weight" or "bias")."""
    return call_of(problem, direction)(**tensors.operands(direction))


def operands_on_device(context: CheckContext) -> Tensors:
    """Draw operands for the context's problem, and move them to the device."""
    problem = context.the_problem
    operands = problem_operands(problem, context.dtype, context.seed())
    return context.placed(lambda: operands.to(context.device, context.dtype, problem))
