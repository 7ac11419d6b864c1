"""The roofline model: the highest possible speed of a convolution on a device.

S. Williams, A. Waterman, D. Patterson: Roofline: an insightful visual performance model for multicore
architectures. Communications of the ACM 52 (4), 2009, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Optional

from rocmprobe.model.problems import Problem

_ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
DIRECTIONS_IN = {"fwd": 1, "bwd_data": 1, "bwd_weights": 1, "fwd_bwd": 3}


@dataclass(frozen=True)
class Work:
    """Floating-point operations, and bytes moved between memory and the processor."""

    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class Roof:
    """Measured operations per second and bytes per second of a device.

    ``flops`` is measured with a matrix product. ``bytes`` is measured with a copy, and counts bytes read and
    bytes written.
    """

    flops: float
    bytes: float

    def attainable(self, work: Work) -> float:
        """Return the highest possible operations per second for ``work`` (Williams et al.)."""
        return min(self.flops, self.bytes * work.intensity)

    def share(self, work: Work, seconds: float) -> float:
        """Return the fraction of the attainable rate that is reached if ``work`` takes ``seconds``.

        The fraction can exceed 1, e.g. with Winograd or FFT.
        """
        return work.flops / seconds / self.attainable(work)


def work(problem: Problem, what: str) -> Work:
    """Return the operations and bytes of ``what``, a key of ``DIRECTIONS_IN``.

    The operations are those of the direct method. The bytes are those of input, weight and output, without
    bias.
    """
    shapes = (problem.input_shape, problem.weight_shape, problem.output_shape)
    moved = sum(map(prod, shapes)) * _ITEM_BYTES[problem.dtype]
    return Work(problem.flops * DIRECTIONS_IN[what], moved * DIRECTIONS_IN[what])


def measure_roof(timings: Mapping[str, Any]) -> Optional[Roof]:
    """Return the device's rates, or None if ``timings`` lacks a measurement.

    ``timings`` has the seconds ``gemm`` and ``copy``, and the amounts ``gemm_flops`` and ``copy_bytes``.
    """
    rates = [
        _rate(timings.get(amount), timings.get(seconds))
        for seconds, amount in (("gemm", "gemm_flops"), ("copy", "copy_bytes"))
    ]
    flops, moved = rates
    return Roof(flops, moved) if flops and moved else None


def _rate(amount: Any, seconds: Any) -> Optional[float]:
    numbers = all(isinstance(each, (int, float)) and 0 < each < 1e30 for each in (amount, seconds))
    return amount / seconds if numbers else None
