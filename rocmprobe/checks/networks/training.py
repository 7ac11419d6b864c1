"""Training one of the networks: a step at a time, on one batch of fixed data."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Optional

import torch
from torch import Tensor

from rocmprobe.checks.networks.catalogue import NETWORKS, drawn
from rocmprobe.checks.networks.precision import Precision, plain

#: What is trained and compared.
STEPS, BATCH, SEED = 20, 4, 0
_MOMENTUM = 0.9


@dataclass(frozen=True)
class Trained:
    """What a training came to: the loss of every step, and by parameter the last step's gradient and the
    way from the first weights to the last; all in fp64 on the CPU. ``scale`` is the GradScaler's at the end,
    None without one; ``skipped`` counts the steps that it left out, since a gradient overflowed."""

    losses: tuple[float, ...]
    gradients: Mapping[str, Tensor]
    ways: Mapping[str, Tensor]
    scale: Optional[float]
    skipped: int


class Trainer:
    """One network on one device, with its data.

    SGD with momentum: it takes gradients as they are, whereas Adam makes a step of full size out of the
    rounding errors of a gradient that is zero.
    """

    def __init__(self, name: str, device: str, precision: Precision, batch: int, seed: int) -> None:
        recipe = NETWORKS[name]
        self._precision = precision
        self._start = drawn(recipe, seed)
        self._network = copy.deepcopy(self._start).to(device, precision.dtype)
        data = recipe.draw(torch.Generator().manual_seed(seed + 1), batch)
        self._inputs, self._targets = _placed(data, device, precision.dtype)
        self._optimizer = torch.optim.SGD(self._network.parameters(), lr=recipe.rate, momentum=_MOMENTUM)
        self._losses: list[Tensor] = []
        self._skipped = 0

    def step(self) -> None:
        """Forward, backward and optimizer."""
        scaler = self._precision.scaler
        self._optimizer.zero_grad()
        with self._precision.autocast():
            loss = self._network(self._inputs, self._targets)
        scaler.scale(loss).backward()
        scaler.unscale_(self._optimizer)
        scaler.step(self._optimizer)
        scale = scaler.get_scale()
        scaler.update()
        self._skipped += scaler.get_scale() < scale
        self._losses.append(loss.detach())

    def trained(self) -> Trained:
        """What the steps so far came to."""
        start = dict(self._start.named_parameters())
        parameters = dict(self._network.named_parameters())
        scaler = self._precision.scaler
        return Trained(
            tuple(float(loss) for loss in self._losses),
            {name: _wide(each.grad) for name, each in parameters.items()},
            {name: _wide(each) - start[name].detach() for name, each in parameters.items()},
            scaler.get_scale() if scaler.is_enabled() else None,
            self._skipped,
        )


@cache
def reference(name: str, seed: int = SEED) -> Trained:
    """The training in fp64 on the CPU, which PyTorch keeps from oneDNN."""
    trainer = Trainer(name, "cpu", plain(torch.float64), BATCH, seed)
    threads = torch.get_num_threads()
    # It is too small to gain by threads, which wait for each other where the machine is busy.
    torch.set_num_threads(1)
    try:
        for _ in range(STEPS):
            trainer.step()
    finally:
        torch.set_num_threads(threads)
    return trainer.trained()


@dataclass(frozen=True)
class Deviation:
    """How far a training is from its reference. ``of`` names the parameter that is worst."""

    losses: float
    gradients: float
    gradients_of: str
    ways: float
    ways_of: str


def deviation(result: Trained, expected: Trained) -> Deviation:
    """Losses as a share of the largest expected one; gradients and ways of the worst parameter, see
    :func:`_worst`. Infinite where a number is not finite."""
    largest = max(map(abs, expected.losses))
    losses = max(_finite(abs(a - b) / largest) for a, b in zip(result.losses, expected.losses))
    return Deviation(
        losses, *_worst(result.gradients, expected.gradients), *_worst(result.ways, expected.ways)
    )


#: Share of the largest expected norm of any parameter that is the least scale of an error: what nearly
#: cancels, as the gradient of a batch norm's weight before another batch norm, has no digits of its own.
_LEAST_SCALE = 0.1


def _worst(result: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> tuple[float, str]:
    """The largest error of any parameter, as the L2 norm of the difference over that of what is expected,
    and its name."""
    least = _LEAST_SCALE * max(float(each.norm()) for each in expected.values())
    return max(
        (_finite(float((result[name] - each).norm()) / max(float(each.norm()), least)), name)
        for name, each in expected.items()
    )


def _finite(error: float) -> float:
    return error if error < float("inf") else float("inf")


def _wide(tensor: Any) -> Tensor:
    wide: Tensor = tensor.detach().to("cpu", torch.float64).clone()
    return wide


def _placed(data: Any, device: str, dtype: Any) -> Any:
    """Tensors, in tuples and lists, on the device; those of numbers with a fraction in ``dtype``."""
    if isinstance(data, Tensor):
        return data.to(device, dtype) if data.is_floating_point() else data.to(device)
    return type(data)(_placed(each, device, dtype) for each in data)
