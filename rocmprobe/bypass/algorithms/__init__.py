"""Algorithms of the bypass, one per file.

Algorithms only multiply and add, so results on small integers are exact.
"""

from __future__ import annotations

from rocmprobe.bypass.algorithms.aten import Aten
from rocmprobe.bypass.algorithms.base import Algorithm, Operands, Plan
from rocmprobe.bypass.algorithms.col2im import Col2im
from rocmprobe.bypass.algorithms.depthwise_shift import DepthwiseShift
from rocmprobe.bypass.algorithms.im2col import Im2col
from rocmprobe.bypass.algorithms.own_kernels import OwnKernel
from rocmprobe.bypass.algorithms.pointwise import Pointwise
from rocmprobe.bypass.algorithms.shift import Shift
from rocmprobe.kernels import NAMES

__all__ = ["ALGORITHMS", "Algorithm", "Operands", "Plan"]

ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Pointwise(), Im2col(), Shift(), DepthwiseShift(), Col2im(), Aten(), *map(OwnKernel, NAMES),
    )
}  # fmt: skip
