"""A training step to repeat, and comparisons of the results."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from rocmprobe.checks.networks.catalogue import STACK, drawn

#: Number of different images in a batch, and the seed of weights and data.
IMAGES, SEED = 4, 0
#: The error of a correct result is at most this many times the error of fp32 on the CPU. The errors of
#: Winograd and FFT are up to ten times as large as the errors of plain sums (model/numerics.py).
_MARGIN = 10.0
#: An error is divided by the norm of the tensor, but at least by this fraction of the largest norm in its
#: group. Otherwise a tensor whose sums nearly cancel would have a large error even in a correct result.
_LEAST_SCALE = 0.1


@dataclass(frozen=True)
class Difference:
    """Bitwise difference between two results.

    ``of`` is the tensor with the most different elements. ``elements`` and ``bits`` count the differences in
    this tensor. ``tensors`` is the number of tensors that differ.
    """

    of: str
    elements: int
    bits: int
    tensors: int


class RepeatedStep:
    """A training step that always starts from the same weights and data.

    The batch has ``copies`` copies of each image, which does not change the loss and the gradients.
    """

    def __init__(self, device: str, dtype: Any, copies: int) -> None:
        start = drawn(STACK, SEED)
        images, labels = STACK.draw(torch.Generator().manual_seed(SEED + 1), IMAGES)
        self._network = copy.deepcopy(start).to(device, dtype)
        self._start = [each.detach().clone() for each in self._network.parameters()]
        self._images = images.to(device, dtype).repeat(copies, 1, 1, 1)
        self._labels = labels.to(device).repeat(copies)
        self._optimizer = torch.optim.SGD(self._network.parameters(), lr=STACK.rate)

    @property
    def batch(self) -> int:
        return len(self._images)

    def run(self) -> Tensor:
        """Run the step, and return loss, gradients and new weights as one flat tensor on the CPU."""
        parameters = list(self._network.parameters())
        with torch.no_grad():
            for parameter, start in zip(parameters, self._start):
                parameter.copy_(start)
        self._optimizer.zero_grad()
        loss = self._network(self._images, self._labels)
        loss.backward()
        self._optimizer.step()
        gradients = [each.grad for each in parameters if each.grad is not None]
        parts = [loss, *gradients, *parameters]
        return torch.cat([each.detach().reshape(-1) for each in parts]).cpu()

    def groups(self) -> Iterator[list[tuple[str, int]]]:
        """Yield three lists: the loss, the gradients and the new weights.

        Each list has a (name, number of elements) for each tensor, in the order of the result of ``run``.
        """
        sizes = [(name, each.numel()) for name, each in self._network.named_parameters()]
        yield [("the loss", 1)]
        yield [(f"the gradient of {name}", size) for name, size in sizes]
        yield [(f"the new {name}", size) for name, size in sizes]


class Comparison:
    """Comparison of ``RepeatedStep`` results with fp64 on the CPU."""

    def __init__(self) -> None:
        wide = RepeatedStep("cpu", torch.float64, 1)
        self._truth = _in_one_thread(wide)
        groups = list(wide.groups())
        self._names = [name for group in groups for name, _ in group]
        self._sizes = [size for group in groups for _, size in group]
        norms = iter([float(part.norm()) for part in self._truth.split(self._sizes)])
        of_groups = [[next(norms) for _ in group] for group in groups]
        self._scales = [max(norm, _LEAST_SCALE * max(group)) for group in of_groups for norm in group]
        self._error_on_cpu = self.error(_in_one_thread(RepeatedStep("cpu", torch.float32, 1)))

    def limit(self, copies: int) -> float:
        """Return the largest error of a correct result for a batch with ``copies`` copies of each image."""
        return _MARGIN * self._error_on_cpu * sqrt(copies)

    def error(self, result: Tensor) -> float:
        """Return the largest relative error (L2 norm) of any tensor, or infinity if a number is not
        finite."""
        parts = zip(result.double().split(self._sizes), self._truth.split(self._sizes), self._scales)
        errors = [float((part - truth).norm()) / scale for part, truth, scale in parts]
        return max(error if error < float("inf") else float("inf") for error in errors)

    def difference(self, result: Tensor, first: Tensor) -> Difference:
        """Compare two results bit for bit."""
        changed = (result.view(torch.int32) ^ first.view(torch.int32)).split(self._sizes)
        counts = [int(part.count_nonzero()) for part in changed]
        most = counts.index(max(counts))
        bits = sum(int(((changed[most] >> place) & 1).sum()) for place in range(32))
        return Difference(self._names[most], counts[most], bits, sum(map(bool, counts)))


def _in_one_thread(step: RepeatedStep) -> Tensor:
    # In such a small step, several threads would mostly wait for each other.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return step.run()
    finally:
        torch.set_num_threads(threads)


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return True if two results are bitwise equal."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


def most_frequent(results: Sequence[Tensor]) -> tuple[Tensor, int]:
    """Return the most frequent result, compared bit for bit, and the number of occurrences."""
    counts = [sum(same_bits(one, other) for other in results) for one in results]
    return results[counts.index(max(counts))], max(counts)
