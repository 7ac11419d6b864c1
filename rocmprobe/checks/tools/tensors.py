"""Operands of convolution problems, and functions that compute one direction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Optional

from rocmprobe.checks.tools.computation import Named, channels_last, one_thread, uniform, with_gaps
from rocmprobe.checks.tools.context import CheckContext
from rocmprobe.model.problems import Problem


@dataclass
class Tensors:
    """Operands of a convolution (``bias`` can be None), and the gradient of the output."""

    input: Any
    weight: Any
    bias: Optional[Any]
    grad: Any

    def to(self, device: str, dtype: Any, problem: Optional[Problem] = None) -> Tensors:
        """Return the operands on ``device`` in ``dtype``, in the memory format of ``problem`` if given."""
        change = layout(problem) if problem else None

        def moved(tensor: Any) -> Any:
            tensor = tensor.to(device, dtype)
            return change(tensor) if change else tensor

        return Tensors(**{name: each if each is None else moved(each) for name, each in vars(self).items()})

    def operands(self, direction: str) -> Named:
        """Return the operands of ``direction`` by name."""
        found = dict(vars(self))
        if direction == "fwd":
            del found["grad"]
        return found


def layout(problem: Problem) -> Optional[Callable[[Any], Any]]:
    """Return the function that changes a tensor to the problem's memory format, or None if contiguous."""
    if problem.channels_last:
        return channels_last
    return with_gaps if problem.noncontiguous else None


def shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the operands by name, in the order of drawing."""
    bias = {"bias": (problem.out_channels,)} if problem.bias else {}
    return {
        **bias, "input": problem.input_shape, "weight": problem.weight_shape, "grad": problem.output_shape
    }  # fmt: skip


@one_thread()
def problem_operands(problem: Problem, dtype: Any, seed: int) -> Tensors:
    """Draw operands uniform in [-1, 1), rounded to ``dtype``, as fp64 on the CPU."""
    return Tensors(**{"bias": None, **uniform(shapes(problem), dtype, seed)})


def leave_poison(results: Mapping[str, Any], dtype: Any, device: str) -> None:
    """Fill memory of the same sizes as ``results`` with NaN, and free it.

    Later results in this memory then contain NaN where a kernel writes nothing.
    """
    import torch

    # Fill twice, because the C library returns a large block to the system when the block is freed for the
    # first time.
    for _ in range(2):
        held = [torch.full(each.shape, float("nan"), dtype=dtype, device=device) for each in results.values()]
        del held


def forward(kind: str, input: Any, weight: Any, bias: Any = None, **geometry: Any) -> Named:
    """Compute a convolution."""
    import torch

    return {"output": getattr(torch.nn.functional, kind)(input, weight, bias, **geometry)}


def backward(grad: Any, input: Any, weight: Any, bias: Any = None, **geometry: Any) -> Named:
    """Compute a convolution's gradients. ``geometry["output_mask"]`` selects input, weight and bias."""
    import torch

    # Run no forward pass, because its failure would hide the result of the backward pass.
    gradients = torch.ops.aten.convolution_backward(grad, input, weight, **geometry)
    wanted = zip(("input", "weight", "bias"), geometry["output_mask"], gradients)
    return {name: gradient for name, selected, gradient in wanted if selected}


def call_of(problem: Problem, direction: str) -> partial[Named]:
    """Return a function of the operands that computes one direction."""
    geometry: dict[str, Any] = {
        "stride": problem.stride, "padding": problem.padding, "dilation": problem.dilation,
        "groups": problem.groups,
    }  # fmt: skip
    if direction == "fwd":
        output_padding = {"output_padding": problem.output_padding} if problem.transposed else {}
        return partial(forward, kind=problem.kind, **geometry, **output_padding)
    data = direction == "bwd-data"
    bias = problem.bias and not data
    return partial(
        backward, bias_sizes=[problem.out_channels] if bias else None, **geometry,
        transposed=problem.transposed, output_padding=problem.output_padding,
        output_mask=[data, not data, bias],
    )  # fmt: skip


def run(problem: Problem, direction: str, tensors: Tensors) -> Named:
    """Compute one direction, and return the results by name ("output", "input", "weight" or "bias")."""
    return call_of(problem, direction)(**tensors.operands(direction))


def operands_on_device(context: CheckContext) -> Tensors:
    """Draw operands for the context's problem, and move them to the device."""
    problem = context.the_problem
    operands = problem_operands(problem, context.dtype, context.seed())
    placed: Tensors = context.placed(lambda: operands.to(context.device, context.dtype, problem))
    return placed
