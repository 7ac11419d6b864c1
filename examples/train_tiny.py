"""Train a small network that finds discs in noisy images: a program as any other, without rocmprobe.

It goes down by strided and depthwise convolution and up again by a transposed one, as many networks for
images do, on data made up here. rocmprobe can tell what it takes under other configurations::

    rocmprobe shapes -o shapes.json -- python examples/train_tiny.py
    rocmprobe run --shapes shapes.json
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

BATCH, SIZE, BATCHES = 4, 64, 4
#: Steps that find everything cold: they are not timed.
WARM_UP = 5


def block(inputs: int, outputs: int, kernel: int = 3, **options: int) -> nn.Sequential:
    """Convolution, batch norm and ReLU."""
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False, **options)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class TinyNet(nn.Module):
    """Images (N, 3, H, W) to scores (N, 1, H, W); H and W are divisible by 4."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = block(3, 32, stride=2)
        self.down = nn.Sequential(block(32, 32, groups=32), block(32, 64, kernel=1), block(64, 96, stride=2))
        self.deep = nn.Sequential(block(96, 96), block(96, 96))
        self.up = nn.ConvTranspose2d(96, 32, 2, stride=2)
        self.head = nn.Sequential(block(64, 32), nn.Conv2d(32, 4, 1), nn.PixelShuffle(2))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        fine = self.stem(images)
        coarse = self.down(fine)
        coarse = coarse + self.deep(coarse)
        return self.head(torch.cat([fine, self.up(coarse)], dim=1))


def data(device: torch.device) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of noisy discs, and of where they are."""
    generator = torch.Generator().manual_seed(0)
    places = torch.linspace(-1, 1, SIZE)
    batches = []
    for _ in range(BATCHES):
        x, y, radius = (torch.rand(3, BATCH, 1, 1, 1, generator=generator) - 0.5).unbind()
        inside = (places - x) ** 2 + (places[:, None] - y) ** 2 < (0.5 + radius / 2) ** 2
        noise = torch.randn(BATCH, 3, SIZE, SIZE, generator=generator)
        batches.append(((inside + 0.5 * noise).to(device), inside.float().to(device)))
    return batches


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network on made-up images.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    torch.manual_seed(0)
    network, batches = TinyNet().to(device), data(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    seconds = []
    loss = torch.zeros(())
    for number in range(arguments.steps):
        started = time.perf_counter()
        images, discs = batches[number % BATCHES]
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(network(images), discs)
        loss.backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    print(f"loss: {loss.item():.3f}")
    if len(seconds) > WARM_UP:
        print(f"median step: {statistics.median(seconds[WARM_UP:]):.4f} s")


if __name__ == "__main__":
    main()
