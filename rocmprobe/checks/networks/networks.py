"""Small networks with the structure of common architectures.

``network(inputs, targets)`` returns the loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ResNet(nn.Module):
    """Residual network of three basic blocks (He et al., 2016)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = _normed(3, 12, 3)
        self.blocks = nn.Sequential(BasicBlock(12, 12, 1), BasicBlock(12, 24, 2), BasicBlock(24, 40, 2))
        self.head = nn.Linear(40, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        features = self.blocks(F.relu(self.stem(images)))
        return F.cross_entropy(self.head(features.mean((2, 3))), labels)


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _normed(inputs, outputs, 3, stride)
        self.second = _normed(outputs, outputs, 3)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else _normed(inputs, outputs, 1, stride)

    def forward(self, images: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(images))) + self.shortcut(images))


class Detector(nn.Module):
    """Object detector with two scales, like YOLOv8 (ultralytics, cfg/models/v8/yolov8.yaml)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.fine = nn.Sequential(_silu(3, 8, 3, 2), _silu(8, 16, 3, 2), CrossStage(16, 16))
        self.coarse = nn.Sequential(_silu(16, 24, 3, 2), CrossStage(24, 24))
        self.neck = CrossStage(16 + 24, 16)
        self.boxes = nn.ModuleList([_branch(16, 4), _branch(24, 4)])
        self.classes = nn.ModuleList([_branch(16, classes), _branch(24, classes)])

    def forward(self, images: Tensor, targets: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Return the loss.

        ``targets`` has, for each scale, boxes (N, 4, side, side) and classes (N, classes, side, side).
        """
        fine = self.fine(images)
        coarse = self.coarse(fine)
        raised = F.interpolate(coarse, scale_factor=2.0, mode="nearest")
        scales = (self.neck(torch.cat((fine, raised), 1)), coarse)
        loss = images.new_zeros(())
        for features, box, kind, (its_boxes, its_kinds) in zip(scales, self.boxes, self.classes, targets):
            loss = loss + F.smooth_l1_loss(box(features), its_boxes)
            loss = loss + F.binary_cross_entropy_with_logits(kind(features), its_kinds)
        return loss


class CrossStage(nn.Module):
    """Cross-stage partial block: one branch with a bottleneck, one branch without."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.through, self.past = _silu(inputs, half, 1), _silu(inputs, half, 1)
        self.bottleneck = nn.Sequential(_silu(half, half, 1), _silu(half, half, 3))
        self.join = _silu(2 * half, outputs, 1)

    def forward(self, images: Tensor) -> Tensor:
        through = self.through(images)
        joined: Tensor = self.join(torch.cat((through + self.bottleneck(through), self.past(images)), 1))
        return joined


class UNet(nn.Module):
    """U-Net with two levels (Ronneberger et al., 2015) and batch norm."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.down = nn.ModuleList([_double(3, 8), _double(8, 16)])
        self.bottom = _double(16, 32)
        self.raised = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.up = nn.ModuleList([_double(32, 16), _double(16, 8)])
        self.head = nn.Conv2d(8, classes, 1)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the loss. ``labels`` has the class of every pixel."""
        across = []
        for level in self.down:
            across.append(level(images))
            images = F.avg_pool2d(across[-1], 2)
        images = self.bottom(images)
        for raised, level in zip(self.raised, self.up):
            images = level(torch.cat((raised(images), across.pop()), 1))
        return F.cross_entropy(self.head(images), labels)


class Lstm(nn.Module):
    """Two LSTM layers that classify a sequence."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, 32, num_layers=2, batch_first=True)
        self.head = nn.Linear(32, classes)

    def forward(self, sequences: Tensor, labels: Tensor) -> Tensor:
        """Return the loss. ``sequences`` is (N, steps, features)."""
        return F.cross_entropy(self.head(self.lstm(sequences)[0][:, -1]), labels)


class Depthwise(nn.Module):
    """Inverted residual blocks with depthwise convolution, as in MobileNetV2 (Sandler et al., 2018)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = _normed(3, 12, 3, 2)
        self.blocks = nn.Sequential(
            InvertedResidual(12, 12, 1), InvertedResidual(12, 20, 2), InvertedResidual(20, 20, 1)
        )
        self.last = _normed(20, 64, 1)
        self.head = nn.Linear(64, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        features = F.relu6(self.last(self.blocks(F.relu6(self.stem(images)))))
        return F.cross_entropy(self.head(features.mean((2, 3))), labels)


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = 4 * inputs
        self.expand = _normed(inputs, wide, 1)
        self.depthwise = _normed(wide, wide, 3, stride, groups=wide)
        self.project = _normed(wide, outputs, 1)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, images: Tensor) -> Tensor:
        projected: Tensor = self.project(F.relu6(self.depthwise(F.relu6(self.expand(images)))))
        return images + projected if self.residual else projected


class Stack(nn.Module):
    """Stack of 3x3 convolutions with many channels, to load the device."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            # SiLU has no kink at zero, so rounding changes the gradients only a little.
            _silu(3, 32, 3),
            _silu(32, 64, 3, 2),
            _silu(64, 64, 3),
            _silu(64, 128, 3, 2),
            _silu(128, 128, 3),
        )
        self.head = nn.Linear(128, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.layers(images).mean((2, 3))), labels)


def _normed(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


def _silu(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(*_normed(inputs, outputs, kernel, stride), nn.SiLU())


def _branch(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(_silu(inputs, inputs, 3), nn.Conv2d(inputs, outputs, 1))


def _double(inputs: int, outputs: int) -> nn.Sequential:
    layers = (*_normed(inputs, outputs, 3), nn.ReLU(), *_normed(outputs, outputs, 3), nn.ReLU())
    return nn.Sequential(*layers)
