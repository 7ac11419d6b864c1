"""The algorithms, each in a file of its own."""

from __future__ import annotations

from rocmprobe.bypass.algorithms.aten import Aten
from rocmprobe.bypass.algorithms.base import Algorithm, Operands, Plan
from rocmprobe.bypass.algorithms.col2im import Col2im
from rocmprobe.bypass.algorithms.depthwise import Depthwise
from rocmprobe.bypass.algorithms.depthwise_shift import DepthwiseShift
from rocmprobe.bypass.algorithms.fft import Fft
from rocmprobe.bypass.algorithms.im2col import Im2col
from rocmprobe.bypass.algorithms.im2row import Im2row
from rocmprobe.bypass.algorithms.mec import PartialLowering
from rocmprobe.bypass.algorithms.own_kernels import OwnKernel
from rocmprobe.bypass.algorithms.pointwise import Pointwise
from rocmprobe.bypass.algorithms.shift import Shift
from rocmprobe.bypass.algorithms.winograd import Winograd
from rocmprobe.kernels import NAMES

__all__ = ["ALGORITHMS", "Algorithm", "Operands", "Plan"]

ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Pointwise(), PartialLowering(), Im2col(), Im2row(), Shift(), Depthwise(), DepthwiseShift(),
        Winograd(2), Winograd(4), Fft(), Col2im(), Aten(), *map(OwnKernel, NAMES),
    )
}  # fmt: skip
