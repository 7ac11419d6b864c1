"""A minimal kernel that tests whether kernels load and run at all."""

from __future__ import annotations

import ctypes

from rocmprobe.kernels.launches import Launch, Pointer

SOURCES = ("probe.hip",)
_THREADS = 64


class ProbeArguments(ctypes.Structure):
    _fields_ = [("target", ctypes.c_void_p), ("count", ctypes.c_int32), ("start", ctypes.c_int32)]


STRUCTURES = (ProbeArguments,)


def launch(count: int, start: int = 0) -> Launch:
    """Return the launch that writes the int32 values ``start``, ``start`` + 1, ... to the workspace."""
    arguments = ProbeArguments(count=count, start=start)
    grid = ((count + _THREADS - 1) // _THREADS, 1, 1)
    return Launch("write_indices", grid, _THREADS, arguments, (Pointer("target", "workspace"),))
