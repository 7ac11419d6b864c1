"""A training step of a small CNN: in the dtype asked about, and under autocast."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Callable

from rocmprobe.worker.ask import Answer, Ask
from rocmprobe.worker.checks.layer import LAYER_LIMITS, autocast, held

#: Largest deviation of losses and weights from fp64 after two steps under autocast, by its dtype, on a scale
#: of at least 1. Basis: benchmarks/results/layer_limits.json; each is over five times what is measured there.
AUTOCAST_LIMITS: Mapping[str, float] = {"float16": 4e-4, "bfloat16": 2e-3}
#: The loss times this stays far inside float16, and small gradients rise above its smallest numbers.
_LOSS_SCALE = 2.0**8


def training_step(ask: Ask) -> Answer:
    """Two steps of SGD; weights and losses against the same in fp64 on the CPU."""
    return _against_fp64(ask, ask.dtype, nullcontext, None, LAYER_LIMITS[ask.dtype_name])


def autocast_step(ask: Ask) -> Answer:
    """The same in fp32 under autocast to the dtype asked about, the loss scaled by a GradScaler."""
    import torch

    under = autocast(ask)
    scaler = _scaler(ask.backend.device_type)
    return _against_fp64(ask, torch.float32, under, scaler, AUTOCAST_LIMITS[ask.dtype_name])


def _scaler(kind: str) -> Any:
    """torch's GradScaler, disabled where a torch has it for GPUs alone."""
    import torch

    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(kind, init_scale=_LOSS_SCALE)
    return torch.cuda.amp.GradScaler(init_scale=_LOSS_SCALE, enabled=kind == "cuda")


def _against_fp64(
    ask: Ask, dtype: Any, under: Callable[[], AbstractContextManager[Any]], scaler: Any, limit: float
) -> Answer:
    import torch

    expected, expected_losses = _train(ask, "cpu", torch.float64, nullcontext, None)
    (trained, losses), seconds = ask.first_call(lambda: _train(ask, ask.device, dtype, under, scaler))
    answer = Answer(timings={"first_call": seconds}, numerics={"losses": losses})
    if scaler is not None and scaler.is_enabled():
        # Smaller than at the start: a step was left out because a gradient overflowed.
        answer.numerics["loss_scale"] = scaler.get_scale()
    names = (f"parameter {number}" for number in range(len(trained)))
    reference = torch.tensor(expected_losses, dtype=torch.float64)
    return held([*zip(names, trained, expected), ("losses", torch.tensor(losses), reference)], answer, limit)


def _train(
    ask: Ask, device: str, dtype: Any, under: Callable[[], AbstractContextManager[Any]], scaler: Any
) -> tuple[list[Any], list[float]]:
    """Parameters and losses of two steps on conv, batch norm, ReLU, depthwise and strided conv, linear."""
    import torch
    from torch import nn

    torch.manual_seed(ask.seed())
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    ).to(device, dtype)  # fmt: skip
    generator = torch.Generator().manual_seed(ask.seed())
    images = (torch.rand((4, 3, 20, 20), generator=generator) * 2 - 1).to(device, dtype)
    labels = torch.tensor([0, 1, 2, 3]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        with under():
            loss = nn.functional.cross_entropy(model(images), labels)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        losses.append(float(loss.detach()))
    return [parameter.detach() for parameter in model.parameters()], losses
