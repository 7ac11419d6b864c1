"""Algorithms of the bypass, one per file.

Algorithms only multiply and add, so results on small integers are exact.
"""

from __future__ import annotations

from rocmprobe.bypass.algorithms.algorithm import Algorithm, Plan, Task
from rocmprobe.bypass.algorithms.depthwise import Depthwise
from rocmprobe.bypass.algorithms.gpu_kernel import GpuKernel
from rocmprobe.bypass.algorithms.im2col import Im2col
from rocmprobe.bypass.algorithms.pointwise import Pointwise
from rocmprobe.bypass.algorithms.slow_conv2d import SlowConv2d
from rocmprobe.kernels import NAMES

__all__ = ["ALGORITHMS", "Algorithm", "Plan", "Task"]

ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (Pointwise(), Im2col(), SlowConv2d(), Depthwise(), *map(GpuKernel, NAMES))
}
