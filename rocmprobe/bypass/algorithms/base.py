"""Interface of an algorithm: make plans for a problem, and compute the problem with a plan.

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
- a: bytes of an element in the matrix products (4 for fp16 and bf16, otherwise b)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Callable, Optional

import torch

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry
from rocmprobe.kernels import Module

ELEMENT_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

Needed = Callable[[int, Sequence[int]], int]


@dataclass(frozen=True)
class Operands:
    """Properties of the tensors, other than their sizes, on which a plan depends.

    Attributes:
        dtype: "float16", "bfloat16", "float32" or "float64".
        device_type: "cpu" or "cuda".
        channels_last: True if the results must be channels-last.
        dense: False if an operand must be copied before BLAS can use it as a matrix (e.g. a slice).
        own_kernels: kernels of :mod:`rocmprobe.kernels` that can be used for this device and dtype, if any.
    """

    dtype: str
    device_type: str
    channels_last: bool
    dense: bool
    own_kernels: Optional[Module] = None

    @property
    def size(self) -> int:
        """Bytes of an element of the tensors."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def wide(self) -> int:
        """Bytes of an element in the matrix products."""
        return max(self.size, 4)


@dataclass(frozen=True)
class Plan:
    """One way to compute one direction of a problem, with the expected cost.

    Attributes:
        flipped: True if bwd-data is computed as a forward convolution, see :meth:`Geometry.flipped`.
        samples: number of samples that are computed at once (a chunk).
        tile: number of windows that are computed at once (a tile), for each spatial dimension.
        workspace_bytes: upper bound on the bytes allocated in addition to operands and results.
        flops: number of multiplications and additions.
        moved_bytes: bytes that are read and written for columns, padding, sums and the weight.
        variant: name of one of rocmprobe's own kernels, or "" for PyTorch's kernels.
        gemm_share: expected arithmetic throughput relative to a matrix product.
    """

    algorithm: str
    flipped: bool
    samples: int
    tile: tuple[int, ...]
    workspace_bytes: int
    flops: int = 0
    moved_bytes: int = 0
    launches: int = 0
    variant: str = ""
    gemm_share: float = 1.0

    @property
    def name(self) -> str:
        """Name of the plan in the plan file: algorithm and variant."""
        return f"{self.algorithm} {self.variant}" if self.variant else self.algorithm


class Algorithm:
    """A way to compute directions of a convolution.

    If a plan is ``flipped``, the caller passes the flipped problem to :meth:`forward`.

    Attributes:
        name: name in plans, counts and the plan file.
        own_kernel: True if the algorithm runs kernels of :mod:`rocmprobe.kernels`.
    """

    name = ""
    own_kernel = False

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Optional[Plan]:
        """Return a plan with at most ``cap`` bytes of workspace, or None if the algorithm does not apply.

        If even a single window needs more, "im2col" and "col2im" return a plan for one window at a time.
        """
        raise NotImplementedError

    def plans(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> list[Plan]:
        """Return all plans of the algorithm, by default only the plan of :meth:`plan`."""
        found = self.plan(direction, plain, operands, cap)
        return [] if found is None else [found]

    def forward(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        feature: torch.Tensor,
    ) -> None:
        """Write the convolution of ``image`` and ``weight``, plus ``bias``, into ``feature``.

        Shapes: ``image`` is ``(N, C, *plain.image)``, ``weight`` is ``(K, C / groups, *kernel)``, ``bias`` is
        ``(K,)``, and ``feature`` is ``(N, K, *plain.feature)``.
        """
        raise NotImplementedError

    def backward_data(
        self,
        plan: Plan,
        plain: Geometry,
        gradient: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        image: torch.Tensor,
    ) -> None:
        """Write the gradient of the image, plus ``bias``, into ``image``.

        ``gradient`` has the shape of the feature. ``bias`` is ``(C,)`` or None.
        """
        raise NotImplementedError

    def backward_weights(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        gradient: torch.Tensor,
        weight_gradient: torch.Tensor,
    ) -> None:
        """Write the gradient of the weight into ``weight_gradient``."""
        raise NotImplementedError


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of products and sums: fp32 for fp16 and bf16, else ``dtype``."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def largest_chunk(
    windows: tuple[int, ...], most: int, needed: Needed, cap: int
) -> tuple[int, tuple[int, ...], int]:
    """Return (samples, tile, bytes): how many samples and windows can be computed at once in ``cap`` bytes.

    ``needed(samples, tile)`` returns the bytes that are needed for a number of samples and windows. ``most``
    is the maximum number of samples. ``windows`` are the numbers of windows of a sample, one for each spatial
    dimension. If ``cap`` is too small even for one window of one sample, return one sample and one window.
    """
    samples = largest(most, lambda count: needed(count, windows) <= cap)
    tile = list(windows)
    for dimension, size in enumerate(windows):
        if needed(samples, tile) <= cap:
            break

        def fits(count: int, dimension: int = dimension) -> bool:
            return needed(samples, [*tile[:dimension], count, *tile[dimension + 1 :]]) <= cap

        tile[dimension] = largest(size, fits)
    return samples, tuple(tile), needed(samples, tile)


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest count up to ``most`` for which ``fits`` is true, or 1 if no count fits.

    If a count fits, all smaller counts must fit.
    """
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def weight_traffic(plain: Geometry, operands: Operands, direction: str, products: int) -> int:
    """Return the bytes that matrix products move to read the weight, or to update the weight gradient.

    ``products`` is the number of matrix products.
    """
    touched = 2 if direction == BWD_WEIGHTS else 1
    return touched * products * plain.filters * plain.depth * operands.wide


def gemm_flops(plain: Geometry) -> int:
    """Return the number of multiplications and additions if a matrix product computes one direction."""
    return 2 * plain.batch * plain.filters * plain.depth * prod(plain.feature)


__all__ = [
    "BWD_DATA",
    "BWD_WEIGHTS",
    "FWD",
    "Algorithm",
    "Needed",
    "Operands",
    "Plan",
    "accumulation_dtype",
    "gemm_flops",
    "largest",
    "largest_chunk",
    "weight_traffic",
]  # fmt: skip
