"""Interface of an algorithm: the problems that it supports, and the chunks and the cost of its plans.

Workspace is the peak memory that the bypass allocates in addition to input, weight, bias and results. A plan
states an upper bound on the workspace in bytes. In the formulas of the algorithms, n is the number of samples
at a time, t the windows in a tile of each sample, C channels, K filters, w values in the weight, b bytes for
an element of the tensors and a bytes for an element of the GEMMs (a = 4 for fp16 and bf16, otherwise a = b).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Callable, Optional

import torch

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry

ELEMENT_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

Needed = Callable[[int, Sequence[int]], int]


@dataclass(frozen=True)
class Operands:
    """Properties of the tensors that a plan needs, except their sizes.

    Attributes:
        dtype: "float16", "bfloat16", "float32" or "float64".
        device_type: "cpu" or "cuda".
        channels_last: True if the results must be channels-last.
        dense: False if an operand is a matrix only after a copy (a slice, an expanded tensor).
        own_kernels: True if the kernels of :mod:`rocmprobe.kernels` may be used for this device and dtype.
    """

    dtype: str
    device_type: str
    channels_last: bool
    dense: bool
    own_kernels: bool = False

    @property
    def size(self) -> int:
        """Bytes of an element of the tensors."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def wide(self) -> int:
        """Bytes of an element of the GEMMs."""
        return max(self.size, 4)


@dataclass(frozen=True)
class Plan:
    """Plan for one direction of a problem.

    Attributes:
        algorithm: name of the algorithm.
        flipped: True for bwd-data as a convolution over the gradient with the taps reversed (stride 1).
        samples: samples in one chunk.
        tile: windows in one tile, for each spatial dimension.
        workspace_bytes: upper bound on the bytes that are allocated in addition to operands and results.
        flops: number of multiplications and additions.
        moved_bytes: bytes read and written for columns, padding, sums and the weight.
        launches: number of kernel calls.
        variant: name of one of rocmprobe's own kernels, or "" if PyTorch's kernels compute the direction.
        gemm_share: expected rate of the algorithm's sums, as a share of the rate of a GEMM.
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
        """Algorithm and variant, the key of measurements and of the plan file."""
        return f"{self.algorithm} {self.variant}" if self.variant else self.algorithm


class Algorithm:
    """A way to compute directions of a convolution.

    Every ``forward`` also serves bwd-data at stride 1. Every method can assume that ``plan`` of the same
    algorithm made the plan.

    Attributes:
        name: name in plans, counts and the plan file.
        own_kernel: True if one of several kernels of :mod:`rocmprobe.kernels` computes the direction.
    """

    name = ""
    own_kernel = False

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Optional[Plan]:
        """Return the plan under ``cap`` bytes of workspace, or None if the algorithm does not apply.

        If ``cap`` is too small for even one window, only the algorithms that cut everything into windows
        ("im2col", "col2im") return a plan, for one window.
        """
        raise NotImplementedError

    def plans(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> list[Plan]:
        """Return all plans of the algorithm. By default this is the plan that :meth:`plan` returns."""
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
        """Write the convolution of ``image`` and ``weight`` plus ``bias`` into ``feature``.

        The shapes are ``(N, C, *image)``, ``(K, C / groups, *kernel)``, ``(K,)`` and ``(N, K, *feature)``.
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
        """Write bwd-data of ``gradient`` plus a bias ``(C,)`` into ``image``.

        ``gradient`` has the shape of the feature.
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
    """Return the dtype in which the GEMMs run and accumulate: fp32 for fp16 and bf16, else ``dtype``."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def fitted(windows: tuple[int, ...], most: int, needed: Needed, cap: int) -> tuple[int, tuple[int, ...], int]:
    """Return (samples, tile, bytes) of the largest chunk of work under the cap, at least one window.

    Prefer the most samples with all of their windows. If not even one sample fits, cut the sample into the
    largest tiles that fit. Cut the first dimension first.
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
    """Return the largest count up to ``most`` that fits, at least 1.

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
    """Return the bytes of the weight that ``products`` matrix products read.

    For bwd-weights, return the bytes of the weight gradient that the products read and write.
    """
    touched = 2 if direction == BWD_WEIGHTS else 1
    return touched * products * plain.filters * plain.depth * operands.wide


def gemm_flops(plain: Geometry) -> int:
    """Return the number of multiplications and additions of one direction if computed as plain sums."""
    return 2 * plain.batch * plain.filters * plain.depth * prod(plain.feature)


__all__ = [
    "BWD_DATA", "BWD_WEIGHTS", "FWD", "Algorithm", "Needed", "Operands", "Plan", "accumulation_dtype",
    "fitted", "gemm_flops", "largest", "weight_traffic",
]  # fmt: skip
