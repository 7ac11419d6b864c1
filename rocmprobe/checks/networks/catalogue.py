"""Networks to train, with random training data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rocmprobe.checks.networks.networks import Depthwise, Detector, Lstm, ResNet, Stack, UNet

#: Width and height of images in pixels, number of steps in a sequence, number of features of each step.
SIDE, STEPS, FEATURES = 32, 24, 16
_CLASSES = 4


@dataclass(frozen=True)
class Recipe:
    """Network, training data and learning rate.

    ``draw(generator, batch)`` returns (inputs, targets) on the CPU: numbers in fp64, class labels in int64.
    """

    build: Callable[[], nn.Module]
    draw: Callable[[torch.Generator, int], tuple[Tensor, Any]]
    #: Learning rate, so small that rounding errors do not grow from step to step.
    rate: float


def drawn(recipe: Recipe, seed: int) -> nn.Module:
    """Return the network in fp64 on the CPU, with random weights that are exact in fp32.

    The weights depend only on ``seed``.
    """
    network = recipe.build().to(torch.float64)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        values = _uniform(generator, parameter.shape)
        if parameter.dim() > 1:
            # With Kaiming's bound, a layer followed by ReLU (which halves the variance) does not change the
            # variance.
            values *= math.sqrt(6 / parameter[0].numel())
        else:
            values = 0.1 * values + name.endswith("weight")
        parameter.data.copy_(values.to(torch.float32))
    return network


def _uniform(generator: torch.Generator, shape: Any) -> Tensor:
    return torch.rand(tuple(shape), generator=generator, dtype=torch.float64) * 2 - 1


def _values(generator: torch.Generator, *shape: int) -> Tensor:
    return _uniform(generator, shape).to(torch.float32).to(torch.float64)


def _labels(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randint(0, _CLASSES, shape, generator=generator)


def _images(generator: torch.Generator, batch: int) -> tuple[Tensor, Any]:
    return _values(generator, batch, 3, SIDE, SIDE), _labels(generator, batch)


def _pixels(generator: torch.Generator, batch: int) -> tuple[Tensor, Any]:
    return _values(generator, batch, 3, SIDE, SIDE), _labels(generator, batch, SIDE, SIDE)


def _objects(generator: torch.Generator, batch: int) -> tuple[Tensor, Any]:
    targets = []
    for side in (SIDE // 4, SIDE // 8):
        boxes = _values(generator, batch, 4, side, side)
        kinds = (_values(generator, batch, _CLASSES, side, side) > 0.5).to(torch.float64)
        targets.append((boxes, kinds))
    return _values(generator, batch, 3, SIDE, SIDE), targets


def _sequences(generator: torch.Generator, batch: int) -> tuple[Tensor, Any]:
    return _values(generator, batch, STEPS, FEATURES), _labels(generator, batch)


NETWORKS: Mapping[str, Recipe] = {
    "resnet": Recipe(lambda: ResNet(_CLASSES), _images, 0.001),
    "detector": Recipe(lambda: Detector(_CLASSES), _objects, 0.01),
    "unet": Recipe(lambda: UNet(_CLASSES), _pixels, 0.002),
    "lstm": Recipe(lambda: Lstm(FEATURES, _CLASSES), _sequences, 0.05),
    "depthwise": Recipe(lambda: Depthwise(_CLASSES), _images, 0.001),
}
STACK = Recipe(lambda: Stack(_CLASSES), _images, 0.01)
