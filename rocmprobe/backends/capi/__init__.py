"""Calls to HIP, rocBLAS and MIOpen through ctypes, without torch and NumPy.

Make these calls only in a child process, because a call can crash or hang.
"""

from __future__ import annotations

from rocmprobe.backends.capi.libraries import LIBRARIES, ORIGINS, Place, choose, place_in, places
from rocmprobe.backends.capi.miopen import MiopenLibrary
from rocmprobe.backends.capi.rocblas import Rocblas
from rocmprobe.runtimes.calls import Call, CallFailed, LoadFailed, NotAvailable
from rocmprobe.runtimes.hip import Hip

__all__ = [
    "LIBRARIES",
    "ORIGINS",
    "Call",
    "CallFailed",
    "Hip",
    "LoadFailed",
    "MiopenLibrary",
    "NotAvailable",
    "Place",
    "Rocblas",
    "choose",
    "place_in",
    "places",
]
