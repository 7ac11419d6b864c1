"""Checks of gradients through autograd, compared to finite differences or to fp64 on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Callable, Optional

from rocmprobe.checks.check import EVERY_DIRECTION, Check
from rocmprobe.checks.networks.precision import autocast, plain
from rocmprobe.checks.tools.compare import check_errors
from rocmprobe.checks.tools.computation import Named, leaf, max_ratio
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.tensors import Tensors, call_of, problem_operands, run

if TYPE_CHECKING:
    from torch import Tensor

#: Limit for the error of a gradient relative to the reference's largest value, keyed by the dtype of the
#: convolution. benchmarks/results/false_alarms.md gives the largest share of each limit that correct results
#: reach. The limit for float32 is more than thirty times the measured error, because MIOpen can choose
#: Winograd, whose error is ten times as large.
GRADIENT_LIMITS: Mapping[str, float] = {
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 7e-2,
}

Convolve = Callable[..., "Tensor"]


@dataclass
class Leaves:
    """Leaves of the autograd graph, the output's gradient, and the convolution function."""

    input: Tensor
    weight: Tensor
    bias: Optional[Tensor]
    grad: Tensor
    convolve: Convolve

    def output(self) -> Tensor:
        return self.convolve(self.input, self.weight, self.bias)

    def gradients(self) -> Named:
        """Return the gradient of each operand that requires one, or zeros if autograd computed none."""
        import torch

        named = {"input": self.input, "weight": self.weight, "bias": self.bias}
        return {
            name: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
            for name, tensor in named.items()
            if tensor is not None and tensor.requires_grad
        }


def once(leaves: Leaves) -> None:
    _backward(leaves.output(), leaves.grad)


def accumulated(leaves: Leaves) -> None:
    """Accumulate the gradients of two backward passes."""
    _backward(leaves.output(), leaves.grad)
    _backward(leaves.output(), leaves.grad.flip(0))


def retained(leaves: Leaves) -> None:
    """Run two backward passes through the same graph."""
    output = leaves.output()
    _backward(output, leaves.grad, retain_graph=True)
    _backward(output, leaves.grad.flip(0))


def shared(leaves: Leaves) -> None:
    """Compute the gradients of two convolutions that share one weight."""
    other = leaves.convolve(leaves.input.flip(0), leaves.weight, leaves.bias)
    _backward(leaves.output() + other, leaves.grad)


def summed(leaves: Leaves) -> None:
    """Differentiate the sum of the output."""
    # The gradient of the output is a single number, expanded with strides of 0.
    leaves.output().sum().backward()


def channels_last_input(leaves: Leaves) -> None:
    _backward(leaves.convolve(_channels_last(leaves.input), leaves.weight, leaves.bias), leaves.grad)


def channels_last_model(leaves: Leaves) -> None:
    weight = _channels_last(leaves.weight)
    _backward(leaves.convolve(_channels_last(leaves.input), weight, leaves.bias), leaves.grad)


def checkpointed(leaves: Leaves, use_reentrant: bool = False) -> None:
    """Compute the gradients with activation checkpointing."""
    from torch.utils.checkpoint import checkpoint

    operands = (leaves.input, leaves.weight, leaves.bias)
    _backward(checkpoint(leaves.convolve, *operands, use_reentrant=use_reentrant), leaves.grad)


def checkpointed_reentrant(leaves: Leaves) -> None:
    checkpointed(leaves, use_reentrant=True)


def of_weights_alone(leaves: Leaves) -> None:
    """Compute no gradient of the input, as in a network's first layer."""
    leaves.input.requires_grad_(False)
    once(leaves)


def frozen(leaves: Leaves) -> None:
    """Compute no gradient of the weight, as in a frozen layer."""
    leaves.weight.requires_grad_(False)
    once(leaves)


Method = Callable[[Leaves], None]
#: (function that runs on the device, function that computes the reference), by name.
METHODS: Mapping[str, tuple[Method, Method]] = {
    "plain": (once, once),
    "accumulated": (accumulated, accumulated),
    "graph retained": (retained, accumulated),
    "weight shared": (shared, shared),
    "of a sum": (summed, summed),
    "input channels-last": (channels_last_input, once),
    "model channels-last": (channels_last_model, once),
    "checkpointed": (checkpointed, once),
    "checkpointed, reentrant": (checkpointed_reentrant, once),
    "input without gradient": (of_weights_alone, of_weights_alone),
    "weight frozen": (frozen, frozen),
}


def gradient_flow(context: CheckContext) -> CheckResult:
    """Compare the gradients from each of ``METHODS`` to fp64 on the CPU.

    For float16 and bfloat16, operands are float32 and the convolution runs under autocast.
    """
    import torch

    half = context.dtype in (torch.float16, torch.bfloat16)
    precision = autocast(context.backend.device_type, context.dtype) if half else plain(context.dtype)
    problem = context.the_problem
    drawn = problem_operands(problem, context.dtype, context.seed())

    def reference(input: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
        return call_of(problem, "fwd")(input=input, weight=weight, bias=bias)["output"]

    def convolve(*operands: Tensor) -> Tensor:
        with precision.autocast():
            return reference(*operands)

    placed = context.placed(lambda: drawn.to(context.device, precision.dtype))
    answer = CheckResult()

    def compared() -> Iterator[tuple[str, Tensor, Tensor]]:
        for name, (way, of_reference) in METHODS.items():
            if "channels-last" in name and problem.rank == 1:
                continue
            expected = _after(of_reference, _leaves(drawn, reference))
            actual, seconds = context.first_call(partial(_after, way, _leaves(placed, convolve)))
            answer.timings.setdefault("first_call", seconds)
            for operand, gradient in expected.items():
                yield f"{name}: gradient of {operand}", actual[operand], gradient

    return check_errors(compared(), answer, GRADIENT_LIMITS[context.dtype_name], max_ratio)


def _leaves(tensors: Tensors, convolve: Convolve) -> Leaves:
    bias = None if tensors.bias is None else leaf(tensors.bias.clone())
    return Leaves(leaf(tensors.input.clone()), leaf(tensors.weight.clone()), bias, tensors.grad, convolve)


def _after(way: Method, leaves: Leaves) -> Named:
    way(leaves)
    return leaves.gradients()


def _backward(output: Tensor, grad: Tensor, retain_graph: bool = False) -> None:
    output.backward(grad.to(output.dtype), retain_graph=retain_graph)


def _channels_last(tensor: Tensor) -> Tensor:
    import torch

    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats[tensor.dim()])


def gradients(context: CheckContext) -> CheckResult:
    """Run ``torch.autograd.gradcheck`` and ``gradgradcheck`` in fast mode."""
    import torch

    problem = context.the_problem
    drawn = problem_operands(problem, context.dtype, context.seed())
    operands = context.placed(lambda: drawn.to(context.device, context.dtype))
    leaves = [
        tensor.requires_grad_()
        for tensor in (operands.input, operands.weight, operands.bias)
        if tensor is not None
    ]

    def forward(*tensors: Tensor) -> Tensor:
        operands.input, operands.weight, *bias = tensors
        operands.bias = bias[0] if bias else None
        return run(problem, "fwd", operands)["output"]

    def differentiate() -> str:
        for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
            try:
                check(forward, leaves, fast_mode=True)
            except RuntimeError as error:
                # gradcheck reports a mismatch with this exception. Any other error is a failure of the
                # device.
                if type(error).__name__ != "GradcheckError":
                    raise
                return f"{check.__name__}: {str(error).splitlines()[0]}"
        return ""

    mismatch, seconds = context.first_call(differentiate)
    return CheckResult("wrong" if mismatch else "pass", mismatch, timings={"first_call": seconds})


CHECKS = (
    Check(
        name="gradients",
        rung="conv",
        question="Do first and second derivatives agree with finite differences?",
        function=gradients,
        requires=EVERY_DIRECTION,
    ),
    Check(
        name="gradient-flow",
        rung="conv",
        question="Are accumulated, channels-last, checkpointed and autocast gradients correct?",
        function=gradient_flow,
        requires=EVERY_DIRECTION,
        seconds=0.5,
    ),
)
