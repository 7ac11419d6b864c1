"""Forward and bwd-data as products of matrices that gather what they read: the host's side of
``source/gather_gemm.hip``.

A row of the result is a channel of it, a column a position of it in a sample, and the depth is made of the
channels and taps that are read. First the weights are packed as the product reads them, with a table of the
depth, into the workspace; then each chunk of samples is one launch. bwd-data does so for each phase of the
stride.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Optional

from rocmprobe.geometry import FWD, Geometry
from rocmprobe.kernels.families.extents import (
    GRID,
    ITEM_BYTES,
    NEVER,
    REACH,
    Strides,
    addressable,
    padded,
    reciprocal,
    up,
)
from rocmprobe.kernels.families.gather import Axis, gathers
from rocmprobe.kernels.families.tiles import Tile
from rocmprobe.kernels.launches import Launch, Pointer

SOURCE = "gather_gemm.hip"
_PACK_ROWS, _PACK_DEPTH, _PACK_THREADS = 64, 32, 64
_ALIGNMENT = 256

_Three = ctypes.c_int32 * 3
_ThreeUnsigned = ctypes.c_uint32 * 3
_ThreeLong = ctypes.c_int64 * 3


class GatherPackArguments(ctypes.Structure):
    """Steps of the weight in elements, from ``weight``; of what is read in bytes. ``tap_reads``: positions
    from a tap to the next."""

    _fields_ = [
        ("weight", ctypes.c_void_p),
        ("packed", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("group_step", ctypes.c_int64),
        ("row_step", ctypes.c_int64),
        ("channel_step", ctypes.c_int64),
        ("tap_steps", _ThreeLong),
        ("rows", ctypes.c_int32),
        ("rows_padded", ctypes.c_int32),
        ("channels", ctypes.c_int32),
        ("depth", ctypes.c_int32),
        ("depth_padded", ctypes.c_int32),
        ("tap_major", ctypes.c_int32),
        ("wide", ctypes.c_int32),
        ("never", ctypes.c_uint32),
        ("channel_bytes", ctypes.c_uint32),
        ("tap_bytes", _ThreeUnsigned),
        ("taps", _Three),
        ("tap_reads", _Three),
    ]


class GatherArguments(ctypes.Structure):
    """Steps in bytes, from ``read`` and ``write``; ``multipliers`` and ``shifts`` divide by ``divisors``:
    positions of a sample, of a plane, of a line."""

    _fields_ = [
        ("read", ctypes.c_void_p),
        ("packed", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("write", ctypes.c_void_p),
        ("read_group", ctypes.c_int64),
        ("write_group", ctypes.c_int64),
        ("rows", ctypes.c_int32),
        ("rows_padded", ctypes.c_int32),
        ("depth_padded", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("divisors", _ThreeUnsigned),
        ("multipliers", _ThreeUnsigned),
        ("shifts", _Three),
        ("read_step", _Three),
        ("read_first", _Three),
        ("read_size", _Three),
        ("taps", _Three),
        ("tap_reads", _Three),
        ("read_sample", ctypes.c_uint32),
        ("read_bytes", _ThreeUnsigned),
        ("write_sample", ctypes.c_uint32),
        ("write_row", ctypes.c_uint32),
        ("write_bytes", _ThreeUnsigned),
    ]


STRUCTURES = (GatherPackArguments, GatherArguments)


class GatherTile(Tile):
    """A tile of these kernels."""

    def kernel(self, quads: bool) -> str:
        """The name in the module; with ``quads`` it reads four neighbouring channels at once."""
        return f"gather_gemm_{self.name}_quads" if quads else f"gather_gemm_{self.name}"


TILES = (
    GatherTile("128x128x8", 128, 128, 8, 256, 0.94),
    GatherTile("128x64x16", 128, 64, 16, 128, 0.94),
    GatherTile("64x128x8", 64, 128, 8, 128, 0.91),
    GatherTile("64x64x8", 64, 64, 8, 64, 0.90),
    GatherTile("32x128x8", 32, 128, 8, 64, 0.84),
    GatherTile("wide_64x64x8", 64, 64, 8, 64, 0.85, wide=True),
)


@dataclass(frozen=True)
class Product:
    """One product of matrices: fwd, or a phase of bwd-data."""

    axes: tuple[Axis, ...]
    groups: int
    rows: int
    channels: int
    positions: int
    taps: int

    @property
    def depth(self) -> int:
        """Products that a value is the sum of."""
        return self.channels * self.taps


def products(direction: str, plain: Geometry) -> list[Product]:
    """The products of a direction, with three dimensions and the taps in the order of what they read."""
    solid = padded(plain)
    ends = (solid.filters, solid.channels) if direction == FWD else (solid.channels, solid.filters)
    rows, channels = (end // solid.groups for end in ends)
    return [
        Product(
            tuple(axis.ascending() for axis in axes),
            solid.groups,
            rows,
            channels,
            prod(axis.count for axis in axes),
            prod(axis.taps for axis in axes),
        )
        for axes in gathers(direction, solid)
    ]


def fits(tile: GatherTile, product: Product) -> bool:
    """Whether a kernel of this tile can compute the product."""
    rows, depth = up(product.rows, tile.rows), up(product.depth, tile.depth)
    if max(product.groups, rows // tile.rows, up(depth, _PACK_DEPTH) // _PACK_DEPTH) > GRID:
        return False
    if rows * depth * 4 >= REACH or product.positions >= REACH:
        return False
    if not tile.wide and not product.depth:
        return True
    return tile.holds([axis.taps for axis in product.axes], [axis.read_tap_step for axis in product.axes])


def packed_bytes(tile: GatherTile, product: Product) -> tuple[int, int]:
    """Bytes of the packed weights and of the table of the depth, which is read one step further."""
    depth = up(product.depth, tile.depth)
    return (
        up(product.groups * depth * up(product.rows, tile.rows) * 4, _ALIGNMENT),
        up((depth + tile.depth) * 8, _ALIGNMENT),
    )


def chunk(direction: str, plain: Geometry, dtype: str, image: Strides, feature: Strides) -> int:
    """Samples that one launch can address; 0 where not even one."""
    result = plain.feature if direction == FWD else plain.image
    return min(addressable(plain, ITEM_BYTES[dtype], image, feature), (REACH - 1) // prod(result))


def prepare(
    direction: str,
    plain: Geometry,
    dtype: str,
    tile: GatherTile,
    *,
    image: Strides,
    weight: Strides,
    feature: Strides,
    has_bias: bool,
) -> Optional[tuple[Launch, ...]]:
    """The launches, or None where the kernels cannot address the problem."""
    samples = chunk(direction, plain, dtype, image, feature)
    if samples < 1:
        return None
    read, write = ("image", "feature") if direction == FWD else ("feature", "image")
    reading, writing = (image, feature) if direction == FWD else (feature, image)
    sizes = padded(plain).image if direction == FWD else padded(plain).feature
    launches: list[Launch] = []
    offset = 0
    for product in products(direction, plain):
        if not fits(tile, product):
            return None
        weights, table = packed_bytes(tile, product)
        places = (Pointer("packed", "workspace", offset), Pointer("table", "workspace", offset + weights))
        offset += weights + table
        if product.depth:
            launches.append(_pack(direction, product, tile, dtype, reading, weight.padded(), places))
        for first in range(0, plain.batch, samples):
            pointers = (
                *places,
                *([Pointer("bias", "bias")] if has_bias else ()),
                Pointer("read", read, first * reading.outer * ITEM_BYTES[dtype]),
                Pointer("write", write, _start(product, writing, first) * ITEM_BYTES[dtype]),
            )
            count = min(samples, plain.batch - first)
            launches.append(_multiply(product, tile, dtype, reading, writing, sizes, count, pointers))
    return tuple(launches)


def _pack(
    direction: str,
    product: Product,
    tile: GatherTile,
    dtype: str,
    reading: Strides,
    weight: Strides,
    places: tuple[Pointer, ...],
) -> Launch:
    item = ITEM_BYTES[dtype]
    forward = direction == FWD
    rows, depth = up(product.rows, tile.rows), up(product.depth, tile.depth)
    axes = product.axes
    first = sum(axis.tap_first * step for axis, step in zip(axes, weight.axes))
    arguments = GatherPackArguments(
        group_step=weight.outer * (product.rows if forward else product.channels),
        row_step=weight.outer if forward else weight.inner,
        channel_step=weight.inner if forward else weight.outer,
        tap_steps=_ThreeLong(*(axis.tap_step * step for axis, step in zip(axes, weight.axes))),
        rows=product.rows,
        rows_padded=rows,
        channels=product.channels,
        depth=product.depth,
        depth_padded=depth,
        tap_major=reading.inner == 1,
        wide=tile.wide,
        never=NEVER,
        channel_bytes=reading.inner * item,
        tap_bytes=_ThreeUnsigned(
            *(axis.read_tap_step * step * item for axis, step in zip(axes, reading.padded().axes))
        ),
        taps=_Three(*(axis.taps for axis in axes)),
        tap_reads=_Three(*(axis.read_tap_step for axis in axes)),
    )
    grid = (
        up(rows, _PACK_ROWS) // _PACK_ROWS,
        up(depth, _PACK_DEPTH) // _PACK_DEPTH,
        product.groups,
    )
    pointers = (*places, Pointer("weight", "weight", first * item))
    return Launch("gather_pack", grid, _PACK_THREADS, arguments, pointers)


def _multiply(
    product: Product,
    tile: GatherTile,
    dtype: str,
    reading: Strides,
    writing: Strides,
    sizes: Sequence[int],
    samples: int,
    pointers: tuple[Pointer, ...],
) -> Launch:
    item = ITEM_BYTES[dtype]
    axes = product.axes
    columns = samples * product.positions
    divisors = (product.positions, axes[1].count * axes[2].count, axes[2].count)
    multipliers, shifts = zip(*map(reciprocal, divisors))
    rows = up(product.rows, tile.rows)
    read_axes, write_axes = reading.padded().axes, writing.padded().axes
    arguments = GatherArguments(
        read_group=product.channels * reading.inner * item,
        write_group=product.rows * writing.inner * item,
        rows=product.rows,
        rows_padded=rows,
        depth_padded=up(product.depth, tile.depth),
        columns=columns,
        divisors=_ThreeUnsigned(*divisors),
        multipliers=_ThreeUnsigned(*multipliers),
        shifts=_Three(*shifts),
        read_step=_Three(*(axis.read_step for axis in axes)),
        read_first=_Three(*(axis.read_first for axis in axes)),
        read_size=_Three(*sizes),
        taps=_Three(*(axis.taps for axis in axes)),
        tap_reads=_Three(*(axis.read_tap_step for axis in axes)),
        read_sample=reading.outer * item,
        read_bytes=_ThreeUnsigned(*(step * item for step in read_axes)),
        write_sample=writing.outer * item,
        write_row=writing.inner * item,
        write_bytes=_ThreeUnsigned(*(axis.write_step * step * item for axis, step in zip(axes, write_axes))),
    )
    grid = (up(columns, tile.columns) // tile.columns, rows // tile.rows, product.groups)
    quads = not tile.wide and reading.inner == 1 and product.channels % 4 == 0
    return Launch(tile.kernel(quads), grid, tile.threads, arguments, pointers)


def _start(product: Product, writing: Strides, sample: int) -> int:
    """Elements before the first that a launch writes."""
    axes = zip(product.axes, writing.padded().axes)
    return sample * writing.outer + sum(axis.write_first * step for axis, step in axes)
