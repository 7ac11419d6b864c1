"""The C interface of librocblas, for matrix products.

The values of enum constants come from rocblas-types.h. rocBLAS aborts the process if its kernel files for the
device are missing.
"""

from __future__ import annotations

import ctypes
from typing import Optional

from rocmprobe.runtimes.calls import INT, POINTER, Observer, SharedLibrary
from rocmprobe.runtimes.memory import Buffer

STATUS_NAMES = (
    "rocblas_status_success", "rocblas_status_invalid_handle", "rocblas_status_not_implemented",
    "rocblas_status_invalid_pointer", "rocblas_status_invalid_size", "rocblas_status_memory_error",
    "rocblas_status_internal_error", "rocblas_status_perf_degraded", "rocblas_status_size_query_mismatch",
    "rocblas_status_size_increased", "rocblas_status_size_unchanged", "rocblas_status_invalid_value",
    "rocblas_status_continue", "rocblas_status_check_numerics_fail", "rocblas_status_excluded_from_build",
    "rocblas_status_arch_mismatch",
)  # fmt: skip
_GEMM = (POINTER, INT, INT, INT, INT, INT, POINTER, POINTER, INT, POINTER, INT, POINTER, POINTER, INT)
_SIGNATURES = {
    "rocblas_create_handle": (POINTER,),
    "rocblas_sgemm": _GEMM,
    "rocblas_dgemm": _GEMM,
    "rocblas_gemm_ex": (
        POINTER, INT, INT, INT, INT, INT,
        POINTER, POINTER, INT, INT, POINTER, INT, INT,
        POINTER, POINTER, INT, INT, POINTER, INT, INT,
        INT, INT, ctypes.c_int32, ctypes.c_uint32,
    ),
}  # fmt: skip
_NO_TRANSPOSE = 111
_FLOAT32 = 151
_DATATYPES = {"float16": 150, "bfloat16": 168}
#: (GEMM function, C type of its scalar arguments), keyed by dtype.
_PLAIN = {"float32": ("rocblas_sgemm", ctypes.c_float), "float64": ("rocblas_dgemm", ctypes.c_double)}
_STANDARD_ALGORITHM = 0


def _status_name(library: SharedLibrary, number: int) -> str:
    return STATUS_NAMES[number] if 0 <= number < len(STATUS_NAMES) else "unknown rocblas_status"


class Rocblas:
    """rocBLAS with one handle on the current device.

    A failed call raises CallFailed, and a missing function raises NotAvailable. A library that does not load
    raises LoadFailed.
    """

    def __init__(self, path: str, observe: Optional[Observer] = None) -> None:
        self.library = SharedLibrary(path, _SIGNATURES, _status_name, observe)
        self.handle = ctypes.c_void_p()
        self.library.call("rocblas_create_handle", ctypes.byref(self.handle))

    def gemm(self, dtype: str, m: int, n: int, k: int, a: Buffer, b: Buffer, c: Buffer) -> None:
        """Compute c (m, n) = a (m, k) times b (k, n), all row-major."""
        # rocBLAS is column-major, so it gets the factors in reverse order.
        size = (self.handle, _NO_TRANSPOSE, _NO_TRANSPOSE, n, m, k)
        if dtype in _PLAIN:
            function, scalar = _PLAIN[dtype]
            one, zero = ctypes.byref(scalar(1)), ctypes.byref(scalar(0))
            self.library.call(function, *size, one, b.address, n, a.address, k, zero, c.address, n)
            return
        # Sum half-precision products in float32, like PyTorch.
        kind = _DATATYPES[dtype]
        one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
        factors, result = (b.address, kind, n, a.address, kind, k), (c.address, kind, n)
        options = (_FLOAT32, _STANDARD_ALGORITHM, 0, 0)
        self.library.call("rocblas_gemm_ex", *size, one, *factors, zero, *result, *result, *options)
