"""Launch that adds the partial sums of several blocks in a fixed order."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod

from rocmprobe.kernels.families.extents import Divisor
from rocmprobe.kernels.launches import Launch, Pointer, fields

SOURCES = ("reduce.hip",)
KERNEL = "sum_splits"
_THREADS = 256
_DIMENSIONS = 5


class ReduceArguments(ctypes.Structure):
    """Arguments of the reduction. ``partial`` is float32 ``[splits][values]``.

    The values in ``partial`` are in contiguous order. ``sizes`` and ``strides`` (in elements) describe
    ``target``. ``of_channel`` is the number of values per channel of a sample.
    """

    _fields_ = [
        *fields(ctypes.c_void_p, "partial", "target", "bias"),
        *fields(ctypes.c_int32, "values", "splits"),
        *fields(Divisor, "of_channel", "channels"),
        ("sizes", Divisor * _DIMENSIONS),
        ("strides", ctypes.c_uint32 * _DIMENSIONS),
    ]


STRUCTURES = (ReduceArguments,)
_GRADIENT = Pointer("target", "weight")


def workspace_bytes(shape: Sequence[int], splits: int) -> int:
    """Return the bytes of ``splits`` float32 tensors of ``shape``."""
    return 4 * splits * prod(shape)


def launch(
    shape: Sequence[int],
    strides: Sequence[int],
    splits: int,
    *,
    workspace_offset: int = 0,
    target: Pointer = _GRADIENT,
    has_bias: bool = False,
) -> Launch:
    """Return the launch that adds ``splits`` partial sums and writes the total to ``target``.

    The partial sums are float32 ``[splits][values]`` at byte ``workspace_offset`` of the workspace. The
    target has at most 5 dimensions and 2^31 - 1 values. ``strides`` are in elements. A bias has one value for
    each index of the second dimension.
    """
    values = prod(shape)
    merged = _merged(shape, strides)
    missing = _DIMENSIONS - len(merged)
    sizes, steps = zip(*[(1, 0)] * missing, *merged)
    arguments = ReduceArguments(
        values=values,
        splits=splits,
        of_channel=Divisor.of(prod(shape[2:])),
        channels=Divisor.of(shape[1] if len(shape) > 1 else 1),
        sizes=tuple(map(Divisor.of, sizes)),
        strides=steps,
    )
    pointers = [Pointer("partial", "workspace", workspace_offset), target]
    if has_bias:
        pointers.append(Pointer("bias", "bias"))
    grid = ((values + _THREADS - 1) // _THREADS, 1, 1)
    return Launch(KERNEL, grid, _THREADS, arguments, tuple(pointers))


def _merged(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return (size, stride) of each dimension larger than 1, with adjacent dimensions merged if possible."""
    merged: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides):
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return merged or [(1, 0)]
