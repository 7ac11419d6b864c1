"""Checks that train a small CNN for two steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional

from rocmprobe.checks.check import Check, Requires
from rocmprobe.checks.networks.precision import Precision, autocast, plain
from rocmprobe.checks.tools.compare import check_errors
from rocmprobe.checks.tools.computation import one_thread
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.model.numerics import LAYER_LIMITS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: Limit for the error of losses and weights after two steps under autocast, keyed by its dtype. The error is
#: relative to the largest value or 1. benchmarks/results/false_alarms.md gives the largest share of each
#: limit that correct results reach.
AUTOCAST_LIMITS: Mapping[str, float] = {"float16": 4e-4, "bfloat16": 2e-3}
#: Number of images in a step. It is as large as in real programs, because a kernel can be wrong for large
#: batches only.
_BATCH = 16


def training_step(context: CheckContext) -> CheckResult:
    """Train in the requested dtype, and compare weights and losses to fp64 on the CPU."""
    return _against_fp64(context, plain(context.dtype), LAYER_LIMITS[context.dtype_name])


def autocast_step(context: CheckContext) -> CheckResult:
    """Train in fp32 under autocast to the requested dtype, with loss scaling."""
    return _against_fp64(
        context, autocast(context.backend.device_type, context.dtype), AUTOCAST_LIMITS[context.dtype_name]
    )


def channels_last_step(context: CheckContext) -> CheckResult:
    """Train in channels-last format, for which PyTorch can select other kernels."""
    import torch

    form = torch.channels_last
    return _against_fp64(context, plain(context.dtype), LAYER_LIMITS[context.dtype_name], form)


def _against_fp64(
    context: CheckContext,
    precision: Precision,
    limit: float,
    memory_format: Optional[torch.memory_format] = None,
) -> CheckResult:
    import torch

    # Threads only cost time for a network as small as this one.
    with one_thread():
        expected, expected_losses = _train(context, "cpu", plain(torch.float64))
    (trained, losses), seconds = context.first_call(
        lambda: _train(context, context.device, precision, memory_format)
    )
    answer = CheckResult(timings={"first_call": seconds}, numerics={"losses": losses})
    if precision.scaler.is_enabled():
        # If the scale is below the initial scale, a step was skipped because a gradient overflowed.
        answer.numerics["loss_scale"] = precision.scaler.get_scale()
    names = (f"parameter {number}" for number in range(len(trained)))
    reference = torch.tensor(expected_losses, dtype=torch.float64)
    return check_errors(
        [*zip(names, trained, expected), ("losses", torch.tensor(losses), reference)], answer, limit
    )


def _train(
    context: CheckContext,
    device: str,
    precision: Precision,
    memory_format: Optional[torch.memory_format] = None,
) -> tuple[list[Tensor], list[float]]:
    import torch
    from torch import nn

    torch.manual_seed(context.seed())
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    ).to(device, precision.dtype)
    generator = torch.Generator().manual_seed(context.seed())
    images = (torch.rand((_BATCH, 3, 20, 20), generator=generator) * 2 - 1).to(device, precision.dtype)
    if memory_format is not None:
        images = images.contiguous(memory_format=memory_format)
        to: Any = model.to
        to(memory_format=memory_format)
    labels = (torch.arange(_BATCH) % 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        with precision.autocast():
            loss = nn.functional.cross_entropy(model(images), labels)
        precision.scaler.scale(loss).backward()
        precision.scaler.step(optimizer)
        precision.scaler.update()
        losses.append(float(loss.detach()))
    return [parameter.detach() for parameter in model.parameters()], losses


CHECKS = (
    Check(
        name="training-step",
        rung="train",
        question="Does a small CNN train as on the CPU in fp64?",
        function=training_step,
        requires=Requires(("gemm",), beside=("batch-norm",), convolution="every"),
        seconds=2.0,
    ),
    Check(
        name="channels-last-step",
        rung="train",
        question="Does a small CNN train correctly in channels-last?",
        function=channels_last_step,
        requires=Requires(float32=("training-step",)),
        seconds=0.05,
    ),
    Check(
        name="autocast-step",
        rung="train",
        question="Does a small CNN train correctly under autocast, with its loss scaled?",
        function=autocast_step,
        requires=Requires(("gemm",), beside=("batch-norm",), float32=("training-step",), convolution="every"),
    ),
)
