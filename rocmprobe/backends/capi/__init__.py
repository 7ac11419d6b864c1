"""HIP, rocBLAS and MIOpen through ctypes: the same libraries as under PyTorch, with no torch and no NumPy.

A call may crash or hang the process: only a worker's child makes one.
"""

from __future__ import annotations

from rocmprobe.backends.capi.calls import Call, CallFailed, LoadFailed, NotAvailable
from rocmprobe.backends.capi.convolution import Convolution, Found, convolution
from rocmprobe.backends.capi.hip import Buffer, Hip
from rocmprobe.backends.capi.libraries import ORIGINS, Place, choose, mapped, place_in, places
from rocmprobe.backends.capi.miopen import Descriptor, MiopenLibrary, Tensor
from rocmprobe.backends.capi.rocblas import Rocblas

__all__ = [
    "ORIGINS",
    "Buffer",
    "Call",
    "CallFailed",
    "Convolution",
    "Descriptor",
    "Found",
    "Hip",
    "LoadFailed",
    "MiopenLibrary",
    "NotAvailable",
    "Place",
    "Rocblas",
    "Tensor",
    "choose",
    "convolution",
    "mapped",
    "place_in",
    "places",
]
