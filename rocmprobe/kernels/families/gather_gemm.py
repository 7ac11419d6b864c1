"""Forward and bwd-data as matrix products with a gathered operand: host side of ``source/gather_gemm.hip``.

A row of the product is a channel of the result. A column is a position in a sample of the result. The depth
is the number of terms in each sum, one for each channel and tap. bwd-data has one matrix product for each
phase (see ``gather.py``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Optional

from rocmprobe.geometry import FWD, Geometry
from rocmprobe.kernels.exact import contiguous, shapes
from rocmprobe.kernels.families import reduction
from rocmprobe.kernels.families.extents import (
    GRID,
    ITEM_BYTES,
    NEVER,
    REACH,
    Strides,
    addressable,
    padded,
    reciprocal,
    round_up,
)
from rocmprobe.kernels.families.family import Option
from rocmprobe.kernels.families.gather import Axis, gathers
from rocmprobe.kernels.families.tiles import Tile, cheapest
from rocmprobe.kernels.launches import Launch, Pointer

SOURCE = "gather_gemm.hip"
#: Name of the kernel that packs weights.
PACK = "gather_pack"
_PACK_ROWS, _PACK_DEPTH, _PACK_THREADS = 64, 32, 64
_ALIGNMENT = 256
#: Minimum number of terms in a partial sum. With fewer terms, a kernel spends at least a fifth of its time on
#: writing partial sums to the workspace.
_LEAST_DEPTH = 192
#: Maximum number of matrix products in one launch: all phases of a stride of 2 in three dimensions.
PHASES = 8

_Three = ctypes.c_int32 * 3
_ThreeUnsigned = ctypes.c_uint32 * 3
_ThreeLong = ctypes.c_int64 * 3


class GatherPhase(ctypes.Structure):
    """One matrix product of a launch.

    ``packed``, ``table`` and ``write`` are offsets in bytes, ``weight`` is an offset in elements. The kernel
    divides by ``divisors`` with ``multipliers`` and ``shifts`` (see ``extents.reciprocal``).
    """

    _fields_ = [
        ("packed", ctypes.c_int64),
        ("table", ctypes.c_int64),
        ("weight", ctypes.c_int64),
        ("write", ctypes.c_int64),
        ("depth", ctypes.c_int32),
        ("depth_padded", ctypes.c_int32),
        ("split_depth", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("divisors", _ThreeUnsigned),
        ("multipliers", _ThreeUnsigned),
        ("shifts", _Three),
        ("read_first", _Three),
        ("taps", _Three),
    ]


_Phases = GatherPhase * PHASES


class GatherPackArguments(ctypes.Structure):
    """Arguments of the kernel that packs weights.

    Fields with "step" in their name are in elements of the weight. ``channel_bytes``, ``tap_bytes`` and
    ``tap_reads`` are distances in the input tensor. ``tap_reads`` is in pixels, the others are in bytes.
    """

    _fields_ = [
        ("weight", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("group_step", ctypes.c_int64),
        ("row_step", ctypes.c_int64),
        ("channel_step", ctypes.c_int64),
        ("tap_steps", _ThreeLong),
        ("groups", ctypes.c_int32),
        ("rows", ctypes.c_int32),
        ("rows_padded", ctypes.c_int32),
        ("channels", ctypes.c_int32),
        ("tap_major", ctypes.c_int32),
        ("wide", ctypes.c_int32),
        ("never", ctypes.c_uint32),
        ("channel_bytes", ctypes.c_uint32),
        ("tap_bytes", _ThreeUnsigned),
        ("tap_reads", _Three),
        ("phases", _Phases),
    ]


class GatherArguments(ctypes.Structure):
    """Arguments of the kernel that computes matrix products.

    ``read_step`` and ``tap_reads`` are in positions, other steps in bytes. If ``is_partial`` is 1, the kernel
    writes float32 partial sums ``[splits][values]``.
    """

    _fields_ = [
        ("read", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("write", ctypes.c_void_p),
        ("read_group", ctypes.c_int64),
        ("write_group", ctypes.c_int64),
        ("write_split", ctypes.c_int64),
        ("groups", ctypes.c_int32),
        ("splits", ctypes.c_int32),
        ("is_partial", ctypes.c_int32),
        ("rows", ctypes.c_int32),
        ("rows_padded", ctypes.c_int32),
        ("read_step", _Three),
        ("read_size", _Three),
        ("tap_reads", _Three),
        ("read_sample", ctypes.c_uint32),
        ("read_bytes", _ThreeUnsigned),
        ("write_sample", ctypes.c_uint32),
        ("write_row", ctypes.c_uint32),
        ("write_bytes", _ThreeUnsigned),
        ("phases", _Phases),
    ]


STRUCTURES = (GatherPhase, GatherPackArguments, GatherArguments)


class GatherTile(Tile):
    """A tile of the kernels for forward and bwd-data."""

    def kernel(self, quads: bool) -> str:
        """Return the kernel's name. With ``quads``, the kernel reads four channels at once."""
        return f"gather_gemm_{self.name}_quads" if quads else f"gather_gemm_{self.name}"

    @property
    def kernels(self) -> frozenset[str]:
        """Names of the kernels of this tile."""
        return frozenset(self.kernel(quads) for quads in ((False,) if self.wide else (False, True)))


TILES = (
    GatherTile("128x64x16", 128, 64, 16, 128, 0.94),
    GatherTile("64x64x8", 64, 64, 8, 64, 0.90),
    GatherTile("32x128x8", 32, 128, 8, 64, 0.84),
    GatherTile("wide_64x64x8", 64, 64, 8, 64, 0.85, wide=True),
)


@dataclass(frozen=True)
class Product:
    """A matrix product: forward, or one phase of bwd-data."""

    axes: tuple[Axis, ...]
    groups: int
    rows: int
    channels: int
    positions: int
    taps: int

    @property
    def depth(self) -> int:
        """Number of terms in each sum."""
        return self.channels * self.taps


def products(direction: str, plain: Geometry) -> list[Product]:
    """Return the matrix products of a direction, with three spatial dimensions.

    Successive taps of a product read ascending positions of the input.
    """
    geometry_3d = padded(plain)
    ends = (
        (geometry_3d.filters, geometry_3d.channels)
        if direction == FWD
        else (geometry_3d.channels, geometry_3d.filters)
    )
    rows, channels = (end // geometry_3d.groups for end in ends)
    return [
        Product(
            tuple(axis.ascending() for axis in axes),
            geometry_3d.groups,
            rows,
            channels,
            prod(axis.count for axis in axes),
            prod(axis.taps for axis in axes),
        )
        for axes in gathers(direction, geometry_3d)
    ]


def fits(tile: GatherTile, product: Product) -> bool:
    """Return True if a kernel of this tile can compute the product."""
    rows, depth = round_up(product.rows, tile.rows), round_up(product.depth, tile.depth)
    if max(product.groups * PHASES, rows // tile.rows, round_up(depth, _PACK_DEPTH) // _PACK_DEPTH) > GRID:
        return False
    if rows * depth * 4 >= REACH or product.positions >= REACH:
        return False
    if not tile.wide and not product.depth:
        return True
    return tile.holds([axis.taps for axis in product.axes], [axis.read_tap_step for axis in product.axes])


def options(
    direction: str, plain: Geometry, dtype: str, cap: int, compute_units: int, every: bool = False
) -> list[Option]:
    """Return the kernel for a convolution, if it needs at most ``cap`` bytes of workspace.

    If ``every`` is True, return the kernels of all tiles, with and without a split.
    """
    found = products(direction, plain)
    fitting = [tile for tile in TILES if all(fits(tile, each) for each in found)]

    def blocks_of(tile: GatherTile) -> list[int]:
        return [_blocks(plain, tile, each) for each in found]

    tiles = fitting if every else cheapest(fitting, blocks_of)
    item, offered = ITEM_BYTES[dtype], []
    values = plain.batch * sum(each.rows * each.groups * each.positions for each in found)
    useful = plain.batch * sum(each.rows * each.groups * each.positions * each.depth for each in found)
    for tile in tiles:
        blocks = blocks_of(tile)
        filling = splits_for(found, tile, sum(blocks), compute_units * tile.blocks_per_unit)
        ways = [
            Option(
                variant=f"{tile.name}/{splits}",
                kernels=tile.kernels | {PACK, *([reduction.KERNEL] if splits > 1 else ())},
                workspace_bytes=workspace_bytes(direction, plain, tile, found, splits),
                flops=2 * useful,
                moved_bytes=plain.filters * plain.depth * item
                + workspace_bytes(direction, plain, tile, found, 1)
                + (8 * splits * values if splits > 1 else 0),
                launches=launch_count(found, splits),
                gemm_share=tile.expected_share(
                    useful,
                    [(splits * count, each.depth / splits) for count, each in zip(blocks, found)],
                    compute_units,
                ),
            )
            for splits in ((1, 2) if every else (filling, 1))
        ]
        within = [each for each in ways if each.workspace_bytes <= cap]
        offered += within if every else within[:1]
    return offered


def _blocks(plain: Geometry, tile: GatherTile, product: Product) -> int:
    """Return the number of blocks that compute a product if its sums are not split."""
    columns = -(-plain.batch * product.positions // tile.columns)
    return columns * -(-product.rows // tile.rows) * product.groups


def batches(found: Sequence[Product]) -> list[Sequence[Product]]:
    """Divide products into groups of at most PHASES, one group per launch."""
    return [found[first : first + PHASES] for first in range(0, len(found), PHASES)]


def splits_for(found: Sequence[Product], tile: GatherTile, blocks: int, busy_blocks: int) -> int:
    """Return the number of partial sums into which to split each sum, or 1 for no split.

    ``blocks`` is the number of blocks without a split. With a split, the total number of blocks is at most
    ``busy_blocks``.
    """
    depth = round_up(max(each.depth for each in found), tile.depth)
    splits = min(busy_blocks // blocks, depth // _LEAST_DEPTH, GRID // (found[0].groups * PHASES))
    # Each partial sum has a whole number of steps, so fewer partial sums than ``splits`` can be enough.
    return -(-depth // split_depth(depth, tile, splits)) if splits > 1 else 1


def workspace_bytes(
    direction: str, plain: Geometry, tile: GatherTile, found: Sequence[Product], splits: int
) -> int:
    """Return the bytes of the packed weights, the tables and the partial sums."""
    packed = sum(sum(_packed_bytes(tile, each)) for each in found)
    return packed + (reduction.workspace_bytes(_result(direction, plain), splits) if splits > 1 else 0)


def launch_count(found: Sequence[Product], splits: int) -> int:
    """Return the number of launches, assuming that one launch can address all samples."""
    packs = sum(any(each.depth for each in batch) for batch in batches(found))
    return packs + len(batches(found)) + (splits > 1)


def _packed_bytes(tile: GatherTile, product: Product) -> tuple[int, int]:
    """Return (bytes of the packed weights, bytes of the table).

    The table has one entry for each term of a sum, with the offset of the term's input value.
    """
    depth = round_up(product.depth, tile.depth)
    return (
        round_up(product.groups * depth * round_up(product.rows, tile.rows) * 4, _ALIGNMENT),
        # Some kernels read one step past the end of the table.
        round_up((depth + tile.depth) * 8, _ALIGNMENT),
    )


def _result(direction: str, plain: Geometry) -> tuple[int, ...]:
    return shapes(plain)["feature" if direction == FWD else "image"]


def chunk(direction: str, plain: Geometry, dtype: str, image: Strides, feature: Strides) -> int:
    """Return how many samples one launch can address, or 0 if a single sample is too large."""
    result = plain.feature if direction == FWD else plain.image
    return min(addressable(plain, ITEM_BYTES[dtype], image, feature), (REACH - 1) // prod(result))


def prepare(
    direction: str,
    plain: Geometry,
    dtype: str,
    tile: GatherTile,
    splits: int,
    *,
    image: Strides,
    weight: Strides,
    feature: Strides,
    has_bias: bool,
) -> Optional[tuple[Launch, ...]]:
    """Return the launches of a direction, or None if a sample is too large or the tile does not fit."""
    samples = chunk(direction, plain, dtype, image, feature)
    found = products(direction, plain)
    if samples < 1 or not all(fits(tile, each) for each in found):
        return None
    shape, item = _result(direction, plain), ITEM_BYTES[dtype]
    if samples < plain.batch or prod(shape) * 4 > REACH:
        splits = 1
    read, write = ("image", "feature") if direction == FWD else ("feature", "image")
    reading, result = (image, feature) if direction == FWD else (feature, image)
    writing = (
        Destination(result, item, 1) if splits == 1 else Destination(Strides.of(contiguous(shape)), 4, splits)
    )
    sizes = padded(plain).image if direction == FWD else padded(plain).feature
    launches: list[Launch] = []
    workspace = Pointer("workspace", "workspace")
    parts = workspace_bytes(direction, plain, tile, found, 1)
    offset = 0
    for batch in batches(found):
        phases = []
        for each in batch:
            phases.append(_phase(each, tile, weight.padded(), writing, offset))
            offset += sum(_packed_bytes(tile, each))
        if any(each.depth for each in batch):
            launches.append(_pack(direction, batch, phases, tile, dtype, reading, weight.padded()))
        for first in range(0, plain.batch, samples):
            pointers = (
                workspace,
                *([Pointer("bias", "bias")] if has_bias and splits == 1 else ()),
                Pointer("read", read, first * reading.outer * item),
                Pointer("write", write, first * result.outer * item)
                if splits == 1
                else Pointer("write", "workspace", parts),
            )
            count = min(samples, plain.batch - first)
            launches.append(
                _multiply(batch, phases, tile, item, reading, writing, sizes, prod(shape), count, pointers)
            )
    if splits > 1:
        strides = (result.outer, result.inner, *result.axes)
        target = Pointer("target", write)
        launches.append(
            reduction.launch(shape, strides, splits, workspace_offset=parts, target=target, has_bias=has_bias)
        )
    return tuple(launches)


@dataclass(frozen=True)
class Destination:
    """Destination of the products: the result, or the workspace if sums are split."""

    strides: Strides
    item: int
    splits: int


def _phase(
    product: Product, tile: GatherTile, weight: Strides, writing: Destination, workspace_offset: int
) -> GatherPhase:
    """Return the arguments for a product, except ``columns``, which depends on the number of samples."""
    axes = product.axes
    depth = round_up(product.depth, tile.depth)
    divisors = (product.positions, axes[1].count * axes[2].count, axes[2].count)
    multipliers, shifts = zip(*map(reciprocal, divisors))
    start = sum(axis.write_first * step for axis, step in zip(axes, writing.strides.padded().axes))
    return GatherPhase(
        packed=workspace_offset,
        table=workspace_offset + _packed_bytes(tile, product)[0],
        weight=sum(axis.tap_first * step for axis, step in zip(axes, weight.axes)),
        write=start * writing.item,
        depth=product.depth,
        depth_padded=depth,
        split_depth=split_depth(depth, tile, writing.splits),
        divisors=_ThreeUnsigned(*divisors),
        multipliers=_ThreeUnsigned(*multipliers),
        shifts=_Three(*shifts),
        read_first=_Three(*(axis.read_first for axis in axes)),
        taps=_Three(*(axis.taps for axis in axes)),
    )


def split_depth(depth: int, tile: GatherTile, splits: int) -> int:
    """Return the depth of each of ``splits`` parts, rounded up to whole steps of the tile."""
    return round_up(-(-depth // splits), tile.depth)


def _steps(batch: Sequence[Product]) -> tuple[Axis, Axis, Axis]:
    """Return an ``Axis`` for each spatial dimension (z, y, x), with steps that apply to all products.

    The other fields of each axis belong to only one of the products.
    """
    z, y, x = (next((axis for axis in axes if axis.taps), axes[0]) for axes in zip(*(p.axes for p in batch)))
    return z, y, x


def _pack(
    direction: str,
    batch: Sequence[Product],
    phases: Sequence[GatherPhase],
    tile: GatherTile,
    dtype: str,
    reading: Strides,
    weight: Strides,
) -> Launch:
    item = ITEM_BYTES[dtype]
    forward = direction == FWD
    product, axes = batch[0], _steps(batch)
    rows = round_up(product.rows, tile.rows)
    arguments = GatherPackArguments(
        group_step=weight.outer * (product.rows if forward else product.channels),
        row_step=weight.outer if forward else weight.inner,
        channel_step=weight.inner if forward else weight.outer,
        tap_steps=_ThreeLong(*(axis.tap_step * step for axis, step in zip(axes, weight.axes))),
        groups=product.groups,
        rows=product.rows,
        rows_padded=rows,
        channels=product.channels,
        tap_major=reading.inner == 1,
        wide=tile.wide,
        never=NEVER,
        channel_bytes=reading.inner * item,
        tap_bytes=_ThreeUnsigned(
            *(axis.read_tap_step * step * item for axis, step in zip(axes, reading.padded().axes))
        ),
        tap_reads=_Three(*(axis.read_tap_step for axis in axes)),
        phases=_Phases(*phases),
    )
    grid = (
        round_up(rows, _PACK_ROWS) // _PACK_ROWS,
        -(-max(each.depth_padded for each in phases) // _PACK_DEPTH),
        len(batch) * product.groups,
    )
    pointers = (Pointer("workspace", "workspace"), Pointer("weight", "weight"))
    return Launch(PACK, grid, _PACK_THREADS, arguments, pointers)


def _multiply(
    batch: Sequence[Product],
    phases: Sequence[GatherPhase],
    tile: GatherTile,
    item: int,
    reading: Strides,
    writing: Destination,
    sizes: Sequence[int],
    values: int,
    samples: int,
    pointers: tuple[Pointer, ...],
) -> Launch:
    product, axes = batch[0], _steps(batch)
    rows = round_up(product.rows, tile.rows)
    read_axes, write_axes = reading.padded().axes, writing.strides.padded().axes
    columns = [samples * each.positions for each in batch]
    arguments = GatherArguments(
        read_group=product.channels * reading.inner * item,
        write_group=product.rows * writing.strides.inner * writing.item,
        write_split=values * writing.item,
        groups=product.groups,
        splits=writing.splits,
        is_partial=writing.splits > 1,
        rows=product.rows,
        rows_padded=rows,
        read_step=_Three(*(axis.read_step for axis in axes)),
        read_size=_Three(*sizes),
        tap_reads=_Three(*(axis.read_tap_step for axis in axes)),
        read_sample=reading.outer * item,
        read_bytes=_ThreeUnsigned(*(step * item for step in read_axes)),
        write_sample=writing.strides.outer * writing.item,
        write_row=writing.strides.inner * writing.item,
        write_bytes=_ThreeUnsigned(
            *(axis.write_step * step * writing.item for axis, step in zip(axes, write_axes))
        ),
        phases=_Phases(*phases),
    )
    for number, count in enumerate(columns):
        arguments.phases[number].columns = count
    grid = (
        -(-max(columns) // tile.columns),
        rows // tile.rows,
        len(batch) * product.groups * writing.splits,
    )
    quads = not tile.wide and reading.inner == 1 and product.channels % 4 == 0
    return Launch(tile.kernel(quads), grid, tile.threads, arguments, pointers)
