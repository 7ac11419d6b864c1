"""Training of a network on one fixed batch."""

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
from rocmprobe.checks.tools.computation import one_thread

#: Number of steps, batch size and seed of the training that is compared to fp64.
STEPS, BATCH, SEED = 20, 4, 0
_MOMENTUM = 0.9


@dataclass(frozen=True)
class Trained:
    """Result of a training, with all tensors in fp64 on the CPU.

    - ``losses``: loss of every step
    - ``gradients``: gradient of each parameter in the last step
    - ``updates``: change of each parameter from first to last step
    - ``scale``: final loss scale, or None without loss scaling
    - ``skipped``: number of steps skipped because a gradient overflowed
    """

    losses: tuple[float, ...]
    gradients: Mapping[str, Tensor]
    updates: Mapping[str, Tensor]
    scale: Optional[float]
    skipped: int


class Trainer:
    """Training of one network on one device."""

    def __init__(self, name: str, device: str, precision: Precision) -> None:
        recipe = NETWORKS[name]
        self._precision = precision
        self._start = drawn(recipe, SEED)
        self._network = copy.deepcopy(self._start).to(device, precision.dtype)
        data = recipe.draw(torch.Generator().manual_seed(SEED + 1), BATCH)
        self._inputs, self._targets = _placed(data, device, precision.dtype)
        # The steps of SGD are proportional to the gradients. With Adam, the rounding error of a zero gradient
        # would become a full step.
        self._optimizer = torch.optim.SGD(self._network.parameters(), lr=recipe.rate, momentum=_MOMENTUM)
        self._losses: list[Tensor] = []
        self._skipped = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        """Run one training step."""
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
        """Return the result of the steps so far."""
        start = dict(self._start.named_parameters())
        parameters = dict(self._network.named_parameters())
        scaler = self._precision.scaler
        return Trained(
            tuple(float(loss) for loss in self._losses),
            {name: _wide(parameter.grad) for name, parameter in parameters.items()},
            {name: _wide(parameter) - start[name].detach() for name, parameter in parameters.items()},
            scaler.get_scale() if scaler.is_enabled() else None,
            self._skipped,
        )


@cache
def reference(name: str) -> Trained:
    """Train the network in fp64 on the CPU, and return the result."""
    trainer = Trainer(name, "cpu", plain(torch.float64))
    with one_thread():
        trainer.run(STEPS)
    return trainer.trained()


@dataclass(frozen=True)
class Deviation:
    """Relative errors of a training.

    ``gradients_of`` and ``updates_of`` name the parameter with the largest error.
    """

    losses: float
    gradients: float
    gradients_of: str
    updates: float
    updates_of: str


def deviation(result: Trained, expected: Trained) -> Deviation:
    """Return the deviation of ``result`` from ``expected``, infinite if a number is not finite."""
    largest = max(map(abs, expected.losses))
    losses = max(_finite(abs(a - b) / largest) for a, b in zip(result.losses, expected.losses))
    return Deviation(
        losses, *_worst(result.gradients, expected.gradients), *_worst(result.updates, expected.updates)
    )


#: An error is divided by the norm of the expected tensor, but at least by this fraction of the largest such
#: norm. Otherwise a correct tensor whose sums nearly cancel would have a large error. An example is the
#: gradient of a batch norm's weight before another batch norm.
_LEAST_SCALE = 0.1


def _worst(result: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> tuple[float, str]:
    """Return the largest relative error (L2 norm) of any parameter, and the parameter's name."""
    least = _LEAST_SCALE * max(float(tensor.norm()) for tensor in expected.values())
    return max(
        (_finite(float((result[name] - tensor).norm()) / max(float(tensor.norm()), least)), name)
        for name, tensor in expected.items()
    )


def _finite(error: float) -> float:
    return error if error < float("inf") else float("inf")


def _wide(tensor: Optional[Tensor]) -> Tensor:
    assert tensor is not None, "every parameter has a gradient"
    return tensor.detach().to("cpu", torch.float64).clone()


def _placed(data: Any, device: str, dtype: torch.dtype) -> Any:
    if isinstance(data, Tensor):
        return data.to(device, dtype) if data.is_floating_point() else data.to(device)
    return type(data)(_placed(part, device, dtype) for part in data)
