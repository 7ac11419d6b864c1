"""The sum of partial results on the CPU, against exact integers."""

from __future__ import annotations

import ctypes
from math import prod

import on_cpu
import pytest

from rocmprobe.kernels import exact
from rocmprobe.kernels.families import extents, reduction
from rocmprobe.kernels.sources import source_text


@pytest.mark.parametrize("dtype", sorted(extents.ITEM_BYTES))
@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 3, 3), (2, 3, 2, 3, 5), (300,)])
@pytest.mark.parametrize("splits", [1, 2, 19])
def test_splits_are_summed_into_any_strides(dtype: str, shape: tuple[int, ...], splits: int) -> None:
    library = on_cpu.built(source_text(dtype, (reduction,)))
    item, values = extents.ITEM_BYTES[dtype], prod(shape)
    strides = tuple(reversed(exact.contiguous(tuple(reversed(shape)))))
    partial = exact.integers(values, splits * values)
    workspace = ctypes.create_string_buffer(b"\x55" * 16 + exact.encode(partial, "float32"))
    assert reduction.workspace_bytes(shape, splits) == len(workspace.raw) - 17
    target = ctypes.create_string_buffer(b"\xaa" * (values * item + 16))
    addresses = {"workspace": ctypes.addressof(workspace), "weight": ctypes.addressof(target)}
    on_cpu.run(library, [reduction.launch(shape, strides, splits, workspace_offset=16)], addresses)
    sums = [sum(partial[value::values]) for value in range(values)]
    expected = exact.reorder(exact.encode(sums, dtype), item, shape, strides)
    assert target.raw == expected + b"\xaa" * 16 + b"\0"
