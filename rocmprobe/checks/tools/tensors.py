"""Inputs of a convolution problem, and functions that compute one direction of the problem."""

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
    """Operands of one problem: input, weight, bias (or None) and the gradient of the output."""

    input: Any
    weight: Any
    bias: Optional[Any]
    grad: Any

    def to(self, device: str, dtype: Any, problem: Optional[Problem] = None) -> Tensors:
        """Return the operands on ``device`` in ``dtype`` and in the memory format of ``problem``.

        If ``problem`` is None, the memory format does not change.
        """
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
    """Return the function that gives an operand the memory format of the problem, or None for contiguous
    operands."""
    if problem.channels_last:
        return channels_last
    return with_gaps if problem.noncontiguous else None


def shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the operands by name, in the order in which the operands are drawn."""
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

    An allocator uses freed memory for the next request of the same size. So if a kernel does not write its
    whole result, NaN remains in the result. The memory is filled twice, because the C library returns a large
    block to the system when the block is freed for the first time.
    """
    import torch

    for _ in range(2):
        held = [torch.full(each.shape, float("nan"), dtype=dtype, device=device) for each in results.values()]
        del held


def forward(kind: str, input: Any, weight: Any, bias: Any = None, **geometry: Any) -> Named:
    """Compute a convolution."""
    import torch

    return {"output": getattr(torch.nn.functional, kind)(input, weight, bias, **geometry)}


def backward(grad: Any, input: Any, weight: Any, bias: Any = None, **geometry: Any) -> Named:
    """Compute the gradients of a convolution that ``geometry["output_mask"]`` selects.

    No forward pass is run, because a failure of the forward pass would hide the result of the backward pass.
    """
    import torch

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
    """Compute one direction on the device of the tensors, and return the results by name.

    The names are "output", "input", "weight" and "bias". The backward directions call
    ``aten::convolution_backward`` directly, so that each direction is tested alone.
    """
    return call_of(problem, direction)(**tensors.operands(direction))


def operands_on_device(context: CheckContext) -> Tensors:
    """Return uniform operands of the context's problem on the device, in the context's dtype and the
    problem's memory format."""
    problem = context.the_problem
    operands = problem_operands(problem, context.dtype, context.seed())
    placed: Tensors = context.placed(lambda: operands.to(context.device, context.dtype, problem))
    return placed
