"""Above convolution: batch norm, which enters the vendor library too, and a training step."""

from __future__ import annotations

from typing import Any

from rocmprobe.numerics import judge_float
from rocmprobe.worker.ask import Answer, Ask
from rocmprobe.worker.compare import errors

#: A step of SGD carries rounding through batch norm's division and the update: fp32 weights after two
#: steps were within 3e-7 of fp64 on a CPU in 100 seeds; the limit leaves room for another sum order.
TRAINED_LIMIT = 1e-4


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
    placed = [tensor.to(ask.device, ask.dtype) for tensor in drawn]
    result, seconds = ask.first_call(lambda: call(placed))
    answer = Answer(timings={"first_call": seconds})
    names = ("output", "input gradient", "weight gradient", "bias gradient")
    for name, actual, reference in zip(names, result, expected):
        measured = errors(actual, reference.detach())
        # The input gradient is a difference of nearly equal sums; judged on the scale of its operands.
        scale = max(measured.max_reference, 1.0)
        ratio = measured.max_error / scale
        if measured.non_finite or ratio > TRAINED_LIMIT:
            answer.state = "wrong"
            answer.message = f"{name}: {measured.non_finite} not finite, largest error {ratio:.2g}"
        _, numbers, _ = judge_float(measured, ask.dtype_name)
        answer.numerics[name] = numbers["max_ratio"]
    return answer


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
            losses.append(float(loss))
        return [parameter.detach() for parameter in model.parameters()], losses

    expected, expected_losses = train("cpu", torch.float64)
    (trained, losses), seconds = ask.first_call(lambda: train(ask.device, ask.dtype))
    answer = Answer(timings={"first_call": seconds}, numerics={"losses": losses})
    drift = max(abs(loss - right) for loss, right in zip(losses, expected_losses))
    for actual, reference in zip(trained, expected):
        measured = errors(actual, reference)
        drift = max(drift, measured.max_error, float("inf") if measured.non_finite else 0.0)
    answer.numerics["max_drift"], answer.numerics["max_drift_limit"] = drift, TRAINED_LIMIT
    if not drift <= TRAINED_LIMIT:
        answer.state, answer.message = "wrong", f"weights or losses drift by {drift:.2g} from fp64"
    return answer
