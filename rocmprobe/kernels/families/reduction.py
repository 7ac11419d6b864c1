"""The sum of partial results: what blocks of a split reduction wrote side by side becomes the gradient of the
weight, always added in the same order."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod

from rocmprobe.kernels.launches import Launch, Pointer

SOURCES = ("reduce.hip",)
_THREADS = 256
_DIMENSIONS = 5


class ReduceArguments(ctypes.Structure):
    """``partial``: float32 ``[splits][values]``; ``target``: of ``sizes``, last one fastest, and ``strides``
    in elements."""

    _fields_ = [
        ("partial", ctypes.c_void_p),
        ("target", ctypes.c_void_p),
        ("values", ctypes.c_int32),
        ("splits", ctypes.c_int32),
        ("sizes", ctypes.c_int32 * _DIMENSIONS),
        ("strides", ctypes.c_uint32 * _DIMENSIONS),
    ]


STRUCTURES = (ReduceArguments,)


def workspace_bytes(shape: Sequence[int], splits: int) -> int:
    """What ``splits`` partial results of a tensor of ``shape`` take."""
    return 4 * splits * prod(shape)


def launch(shape: Sequence[int], strides: Sequence[int], splits: int, *, workspace_offset: int = 0) -> Launch:
    """Write the sum over ``splits`` of the float32 ``[splits][values]`` that begin ``workspace_offset`` bytes
    in the workspace to the operand ``weight``, of ``shape`` and ``strides`` (elements), in the dtype of the
    module. The values are in the order of ``shape``, the last dimension fastest; at most 5 dimensions and
    2^31 - 1 values."""
    lead = _DIMENSIONS - len(shape)
    values = prod(shape)
    arguments = ReduceArguments(
        values=values,
        splits=splits,
        sizes=(ctypes.c_int32 * _DIMENSIONS)(*([1] * lead), *shape),
        strides=(ctypes.c_uint32 * _DIMENSIONS)(*([0] * lead), *strides),
    )
    pointers = (Pointer("partial", "workspace", workspace_offset), Pointer("target", "weight"))
    return Launch("sum_splits", ((values + _THREADS - 1) // _THREADS, 1, 1), _THREADS, arguments, pointers)
