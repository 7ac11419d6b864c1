"""The roofline model: the highest speed of a convolution on a device, given the measured rates of the device.

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
#: Timed quantities, and the number of directions that each runs in sequence.
DIRECTIONS_IN = {"fwd": 1, "bwd_data": 1, "bwd_weights": 1, "fwd_bwd": 3}


@dataclass(frozen=True)
class Work:
    """Amount of work: floating-point operations, and bytes moved between memory and the processor."""

    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class Roof:
    """Rates of a device: operations per second in a matrix product, bytes read and written per second in a
    copy."""

    flops: float
    bytes: float

    def attainable(self, work: Work) -> float:
        """Return the highest possible operations per second, by Williams et al.: the smaller of the peak rate
        and bandwidth times intensity."""
        return min(self.flops, self.bytes * work.intensity)

    def share(self, work: Work, seconds: float) -> float:
        """Return the share of the attainable rate that ``work`` in ``seconds`` reaches.

        A share above 1 is no error. Winograd and FFT need fewer multiplications than the direct method, and a
        cache may still contain operands.
        """
        return work.flops / seconds / self.attainable(work)


def work(problem: Problem, what: str) -> Work:
    """Return the work of ``what``, a key of ``DIRECTIONS_IN``.

    Operations are those of the direct method. Bytes are compulsory: each direction reads two of input, weight
    and output (or their gradients) and writes the third, once each. The bias is left out.
    """
    shapes = (problem.input_shape, problem.weight_shape, problem.output_shape)
    moved = sum(map(prod, shapes)) * _ITEM_BYTES[problem.dtype]
    return Work(problem.flops * DIRECTIONS_IN[what], moved * DIRECTIONS_IN[what])


def roof(timings: Mapping[str, Any]) -> Optional[Roof]:
    """Return the device's rates from the reference measurements in ``timings``, or None if one is missing.

    ``timings`` has the seconds of a matrix product and of a copy, and the amount of work of each.
    """
    rates = [
        _rate(timings.get(amount), timings.get(seconds))
        for seconds, amount in (("gemm", "gemm_flops"), ("copy", "copy_bytes"))
    ]
    flops, moved = rates
    return Roof(flops, moved) if flops and moved else None


def _rate(amount: Any, seconds: Any) -> Optional[float]:
    """Return the amount per second.

    Return None unless both are positive, because a results file may be edited.
    """
    numbers = all(isinstance(each, (int, float)) and 0 < each < 1e30 for each in (amount, seconds))
    return amount / seconds if numbers else None
