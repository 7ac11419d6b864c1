"""Checks that train a small network from a DataLoader whose workers are forked or spawned."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from rocmprobe.checks.check import Check, Requires
from rocmprobe.checks.tools.context import CheckContext, CheckResult

if TYPE_CHECKING:
    from torch import Tensor

_IMAGES, _BATCH, _WORKERS, _EPOCHS, _CLASSES = 32, 8, 2, 2, 4
_SHAPE = (3, 16, 16)
#: Seconds after which the DataLoader raises an error if a worker gives no batch, below the time limit of the
#: phase. A spawned worker imports torch first, which takes 5 s, and several times as long on a busy machine.
_PATIENCE = {"fork": 15, "spawn": 45}


class Images:
    """A data set of random images, which a spawned worker can import and unpickle."""

    def __len__(self) -> int:
        return _IMAGES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        import torch

        image = torch.rand(_SHAPE, generator=torch.Generator().manual_seed(index))
        return image, index % _CLASSES


def train_from_loader(context: CheckContext, method: str) -> CheckResult:
    """Train for two epochs with two workers that begin after the device was used.

    ``method`` is "fork" or "spawn". Spawned workers persist between the epochs.
    """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    data = Images()
    expected = torch.stack([data[index][0] for index in range(len(data))])
    torch.manual_seed(context.seed())
    network = nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(_SHAPE), 16), nn.ReLU(), nn.Linear(16, _CLASSES)
    )
    network = context.placed(lambda: network.to(context.device, context.dtype))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

    def step(images: Tensor, labels: Tensor) -> float:
        optimizer.zero_grad()
        output = network(images.to(context.device, context.dtype))
        loss = nn.functional.cross_entropy(output, labels.to(context.device))
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    labels = torch.arange(_BATCH) % _CLASSES
    context.first_call(lambda: step(expected[:_BATCH], labels))
    received, losses = [], []

    def epochs() -> None:
        loader: DataLoader[tuple[Tensor, int]] = DataLoader(
            data,  # type: ignore[arg-type]
            batch_size=_BATCH,
            num_workers=_WORKERS,
            multiprocessing_context=method,
            persistent_workers=method == "spawn",
            timeout=_PATIENCE[method],
        )
        for _ in range(_EPOCHS):
            for images, kinds in loader:
                received.append(images)
                losses.append(step(images, kinds))

    def reported() -> None:
        try:
            epochs()
        except RuntimeError as error:
            # The error of a worker is the last line of a traceback, of which an outcome keeps the beginning.
            raise RuntimeError(str(error).strip().splitlines()[-1]) from error

    _, seconds = context.steady_call(reported)
    answer = CheckResult(timings={"steady": seconds})
    if not torch.equal(torch.cat(received), torch.cat([expected] * _EPOCHS)):
        answer.state, answer.message = "wrong", "the images of the workers differ from the data set"
    elif not all(map(math.isfinite, losses)):
        answer.state, answer.message = "wrong", "a loss is not finite"
    return answer


CHECKS = (
    Check(
        name="data-loader",
        rung="train",
        question="Does training work with two forked workers of a DataLoader?",
        function=partial(train_from_loader, method="fork"),
        requires=Requires(("gemm",)),
        once=True,
        seconds=0.4,
    ),
    Check(
        name="data-loader-spawn",
        rung="train",
        question="Does training work with two spawned, persistent workers of a DataLoader?",
        function=partial(train_from_loader, method="spawn"),
        requires=Requires(("gemm",)),
        once=True,
        seconds=5.0,
    ),
)
