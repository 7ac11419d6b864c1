"""Above convolution: batch norm, which enters the vendor library too, and a training step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rocmprobe.worker.ask import Answer, Ask
from rocmprobe.worker.compare import errors

#: Largest deviation from fp64 that a right fp32 layer or training step may show, relative to the larger
#: of 1 and the reference. Basis: benchmarks/results/layer_limits.json; the limit is over five times that.
LAYER_LIMIT = 1e-4


def batch_norm(ask: Ask) -> Answer:
    """Training mode, forward and gradients of input, weight and bias, against fp64 on the CPU."""
    import torch
    import torch.nn.functional as F

    generator = torch.Generator().manual_seed(ask.seed())
    shape = (4, 16, 14, 14)
    drawn = [
        torch.rand(size, generator=generator, dtype=torch.float64) + 0.5 for size in (shape, 16, 16, shape)
    ]
    drawn = [tensor.to(ask.dtype).to(torch.float64) for tensor in drawn]

    def call(values: list[Any]) -> tuple[Any, ...]:
        image, weight, bias, grad = values
        leaves = [tensor.detach().requires_grad_() for tensor in (image, weight, bias)]
        output = F.batch_norm(leaves[0], None, None, leaves[1], leaves[2], training=True)
        return (output, *torch.autograd.grad(output, leaves, grad))

    expected = call(drawn)
    placed = ask.placed(lambda: [tensor.to(ask.device, ask.dtype) for tensor in drawn])
    result, seconds = ask.first_call(lambda: call(placed))
    names = ("output", "input gradient", "weight gradient", "bias gradient")
    reference = [tensor.detach() for tensor in expected]
    return _judged(zip(names, result, reference), Answer(timings={"first_call": seconds}))


def training_step(ask: Ask) -> Answer:
    """Two steps of SGD on conv, batch norm, ReLU, strided and depthwise conv, linear; weights and losses
    against the same in fp64 on the CPU."""
    import torch
    from torch import nn

    def network() -> Any:
        torch.manual_seed(ask.seed())
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
        )  # fmt: skip

    generator = torch.Generator().manual_seed(ask.seed())
    images = torch.rand((4, 3, 20, 20), generator=generator) * 2 - 1
    labels = torch.tensor([0, 1, 2, 3])

    def train(device: str, dtype: Any) -> tuple[list[Any], list[float]]:
        model = network().to(device, dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses = []
        for _ in range(2):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.to(device, dtype)), labels.to(device))
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return [parameter.detach() for parameter in model.parameters()], losses

    expected, expected_losses = train("cpu", torch.float64)
    (trained, losses), seconds = ask.first_call(lambda: train(ask.device, ask.dtype))
    answer = Answer(timings={"first_call": seconds}, numerics={"losses": losses})
    names = (f"parameter {number}" for number in range(len(trained)))
    compared = [*zip(names, trained, expected), ("losses", torch.tensor(losses), _fp64(expected_losses))]
    return _judged(compared, answer)


def _fp64(values: list[float]) -> Any:
    import torch

    return torch.tensor(values, dtype=torch.float64)


def _judged(compared: Iterable[tuple[str, Any, Any]], answer: Answer) -> Answer:
    """Hold every (name, result, reference) against the limit; ``answer`` tells of the worst."""
    worst, where = 0.0, ""
    for name, result, reference in compared:
        measured = errors(result, reference)
        error = math.inf if measured.non_finite else measured.max_error / max(measured.max_reference, 1.0)
        if error >= worst:
            worst, where = error, name
    answer.numerics.update(max_error=worst, max_error_limit=LAYER_LIMIT, of=where)
    if not worst <= LAYER_LIMIT:
        answer.state, answer.message = "wrong", f"{where}: error {worst:.2g}, the limit is {LAYER_LIMIT:.2g}"
    return answer
