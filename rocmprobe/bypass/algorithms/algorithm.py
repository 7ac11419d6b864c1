"""Interface of an algorithm, and the task that an algorithm computes.

Every algorithm computes a plain (not transposed) convolution of an image. The output is called the feature,
and a window is one position of the feature. Workspace is the peak memory that is allocated in addition to
input, weight, bias and results.

The formulas of the algorithms use these symbols:

- N: number of samples in the batch
- C, K: number of channels of the image and of the feature
- taps: number of positions in the kernel
- depth: C / groups * taps
- windows: number of windows of a sample
- n: number of samples in a chunk
- t: number of windows in a tile of a sample
- w: number of values in the weight
- b: bytes of an element of the tensors
- a: bytes of an element in the matrix products
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional

import torch

from rocmprobe import kernels
from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry

ELEMENT_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


@dataclass(frozen=True)
class Task:
    """One direction of a convolution, with everything on which a plan depends.

    Attributes:
        direction: "fwd", "bwd-data" or "bwd-weights".
        plain: sizes of the plain convolution.
        dtype: "float16", "bfloat16", "float32" or "float64".
        device_type: "cpu" or "cuda".
        channels_last: True if the result is channels-last.
        dense: False if an operand must be copied before BLAS can use it as a matrix (e.g. a slice).
        cap: maximum workspace in bytes.
        kernels: rocmprobe's own kernels for the device and dtype, or None if they cannot be used.
    """

    direction: str
    plain: Geometry
    dtype: str
    device_type: str
    channels_last: bool
    dense: bool
    cap: int
    kernels: Optional[kernels.Module] = None

    @property
    def size(self) -> int:
        """Bytes of an element of the tensors."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def half(self) -> bool:
        """True for float16 and bfloat16."""
        return self.size == 2

    @property
    def on_gpu(self) -> bool:
        return self.device_type != "cpu"

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weight in fp32, or in fp64 if this is the dtype."""
        return self.plain.filters * self.plain.depth * max(self.size, 4)

    def flipped(self) -> Task:
        """Return the forward task that computes this bwd-data task of stride 1."""
        cap = max(0, self.cap - self.weight_bytes)
        return replace(self, direction=FWD, plain=self.plain.flipped(), cap=cap)

    def key(self) -> str:
        """Return the key of the task in the plan file, e.g. "fwd float32 first-dense n8 ..."."""
        plain = self.plain
        sizes = (
            f"{letter}{'x'.join(map(str, values))}"
            for letter, values in (
                ("i", plain.image), ("o", plain.feature), ("f", plain.kernel), ("s", plain.stride),
                ("p", plain.padding), ("d", plain.dilation),
            )
        )  # fmt: skip
        layout = f"{'last' if self.channels_last else 'first'}-{'dense' if self.dense else 'strided'}"
        kernels = " own-kernels" if self.kernels else ""
        return (
            f"{self.direction} {self.dtype} {layout} n{plain.batch} c{plain.channels} k{plain.filters} "
            f"g{plain.groups} {' '.join(sizes)} w{self.cap}{kernels}"
        )


@dataclass(frozen=True)
class Plan:
    """One way to compute a task, with the expected cost.

    Attributes:
        task: what the algorithm computes. If ``flipped``, this is the flipped task.
        samples: number of samples that are computed at once (a chunk).
        tile: number of windows that are computed at once (a tile), for each spatial dimension.
        workspace_bytes: upper bound on the bytes allocated in addition to operands and results.
        flops: number of multiplications and additions.
        moved_bytes: bytes that are read and written for columns, padding, sums and the weight.
        variant: name of one of rocmprobe's own kernels, or "" for PyTorch's kernels.
        gemm_share: expected arithmetic throughput relative to a matrix product.
        flipped: True if bwd-data is computed as a forward convolution, see :meth:`Geometry.flipped`.
    """

    algorithm: str
    task: Task
    samples: int
    tile: tuple[int, ...]
    workspace_bytes: int
    flops: int
    moved_bytes: int
    launches: int
    variant: str = ""
    gemm_share: float = 1.0
    flipped: bool = False

    @property
    def name(self) -> str:
        """Name of the plan in the plan file."""
        return " ".join(filter(None, (self.algorithm, self.variant, "flipped" if self.flipped else "")))


class Algorithm(ABC):
    """A way to compute directions of a convolution.

    To add an algorithm, write a class with these methods in a file, and add the class to ``ALGORITHMS``.

    Attributes:
        name: name in plans, counts and the plan file.
    """

    name = ""

    @abstractmethod
    def applies(self, task: Task) -> bool:
        """Return True if the algorithm can compute ``task`` with any amount of workspace."""

    @abstractmethod
    def cost(self, task: Task) -> Sequence[Plan]:
        """Return the plans for ``task``, each with its cost. The algorithm must apply.

        A plan that needs more than ``task.cap`` bytes is used only if no plan needs less.
        """

    @abstractmethod
    def forward(
        self,
        plan: Plan,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: Optional[torch.Tensor],
        feature: torch.Tensor,
    ) -> None:
        """Write the convolution of ``image`` and ``weight``, plus ``bias``, into ``feature``.

        Shapes: ``image`` is ``(N, C, *plain.image)``, ``weight`` is ``(K, C / groups, *kernel)``, ``bias`` is
        ``(K,)``, and ``feature`` is ``(N, K, *plain.feature)``.
        """

    def backward(
        self,
        plan: Plan,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: Optional[torch.Tensor],
        feature: torch.Tensor,
    ) -> None:
        """Write the gradient of the image (bwd-data) or of the weight (bwd-weights).

        Bwd-data writes the gradient, plus ``bias`` with shape ``(C,)``, into ``image``. Bwd-weights writes
        into ``weight``, without a bias. An algorithm that applies only to forward needs no such method.
        """
        raise AssertionError(f"{self.name} does not apply to {plan.task.direction}")


def weight_traffic(task: Task, products: int) -> int:
    """Return the bytes that ``products`` matrix products move for the weight or for its gradient."""
    return (2 if task.direction == BWD_WEIGHTS else 1) * products * task.weight_bytes


__all__ = [
    "BWD_DATA", "BWD_WEIGHTS", "FWD", "Algorithm", "Plan", "Task", "weight_traffic",
]  # fmt: skip
