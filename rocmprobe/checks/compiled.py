"""Checks of kernels that Triton or ``torch.compile`` compiles at run time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from rocmprobe.checks.check import KERNELS, Check, FailureText, Requires
from rocmprobe.checks.tools.compare import compare
from rocmprobe.checks.tools.computation import (
    Named,
    layer,
    leaf,
    small_integers,
    unequal,
    uniform,
    with_gradients,
)
from rocmprobe.checks.tools.context import CheckContext, CheckResult

if TYPE_CHECKING:
    from torch import Tensor, nn

#: Number of elements. The kernel needs several blocks for this number, and the last block is only partly
#: used.
_COUNT = 5000
#: Initial value of the buffer. The kernel writes only odd numbers, so an even number shows an element that
#: was not written.
_BEFORE = -2
_IMAGES, _CHANNELS, _CLASSES = (2, 3, 14, 14), 8, 4


def triton(context: CheckContext) -> CheckResult:
    """Test that a Triton kernel fills a buffer with the expected integers."""
    import torch

    values = small_integers({"values": (_COUNT,)}, context.dtype, context.seed())["values"]
    source, target = context.placed(
        lambda: (
            values.to(context.device, context.dtype),
            torch.full((_COUNT,), _BEFORE, device=context.device, dtype=context.dtype),
        )
    )
    _, seconds = context.first_call(lambda: context.compiler.launch(source, target))
    wrong = unequal(target, values * 2 + 1)
    untouched = int((target.cpu() == _BEFORE).sum())
    answer = CheckResult(
        timings={"first_call": seconds}, numerics={"exact": not wrong, "untouched": untouched}
    )
    if untouched == _COUNT:
        answer.state, answer.message = "wrong", "the launch reported success and wrote nothing"
    elif wrong:
        answer.state, answer.message = (
            "wrong",
            f"{wrong} of {_COUNT} elements differ, {untouched} not written",
        )
    return answer


def inductor(context: CheckContext) -> CheckResult:
    """Compare output and gradients of a network under ``torch.compile`` to eager mode in fp64 on the CPU.

    The time of the first call includes compilation.
    """
    import torch

    count = sum(parameter.numel() for parameter in _net().parameters())
    shapes = {"image": _IMAGES, "weights": (count,), "grad": (_IMAGES[0], _CLASSES)}

    def call(
        compiled: Callable[[nn.Module], nn.Module], image: Tensor, weights: Tensor, grad: Tensor
    ) -> Named:
        net = _net().to(image.device, image.dtype)
        torch.nn.utils.vector_to_parameters(weights / 2, net.parameters())
        leaves = {"input": leaf(image), **dict(net.named_parameters())}
        return with_gradients(compiled(net)(leaves["input"]), leaves, grad)

    def with_compiler(**operands: Tensor) -> Named:
        with context.compiler.compiling():
            return call(context.compiler.compiled, **operands)

    def without(**operands: Tensor) -> Named:
        return call(lambda net: net, **operands)

    draw = partial(uniform, shapes)
    return compare(context, layer(context.dtype_name, draw, with_compiler, reference=without))


def _net() -> nn.Module:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(_IMAGES[1], _CHANNELS, 3, padding=1, bias=False),
        nn.BatchNorm2d(_CHANNELS),
        nn.SiLU(),
        nn.Conv2d(_CHANNELS, _CHANNELS, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(_CHANNELS, _CLASSES),
    )


CHECKS = (
    Check(
        "triton",
        rung="primitives",
        question="Does a kernel compiled by Triton write the expected values?",
        function=triton,
        requires=KERNELS,
        seconds=0.01,
        explanation=FailureText(
            subject="A kernel in Triton",
            rung="compiled",
            advice="Do not use torch.compile, or packages with Triton kernels.",
        ),
    ),
    Check(
        "inductor",
        rung="primitives",
        question="Does torch.compile give the same results as eager mode?",
        function=inductor,
        requires=Requires(("training-step",)),
        process="own",
        seconds=17.0,
        explanation=FailureText(
            subject="A network under torch.compile",
            rung="compiled",
            advice="Run programs without torch.compile.",
            wrong="compiled-code-wrong",
        ),
    ),
)
