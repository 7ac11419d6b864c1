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
    Divisor,
    Strides,
    addressable,
    divisors,
    padded,
    round_up,
)
from rocmprobe.kernels.families.family import Option
from rocmprobe.kernels.families.gather import Axis, gathers
from rocmprobe.kernels.families.tiles import Tile, cheapest
from rocmprobe.kernels.launches import Launch, Pointer, fields

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


class GatherPhase(ctypes.Structure):
    """One matrix product of a launch.

    ``packed``, ``table`` and ``write`` are offsets in bytes, ``weight`` is an offset in elements. The kernel
    finds the place of a column with ``divisors``.
    """

    _fields_ = [
        *fields(ctypes.c_int64, "packed", "table", "weight", "write"),
        *fields(ctypes.c_int32, "depth", "depth_padded", "split_depth", "columns"),
        ("divisors", Divisor * 3),
        *fields(ctypes.c_int32 * 3, "read_first", "taps"),
    ]


class GatherPackArguments(ctypes.Structure):
    """Arguments of the kernel that packs weights.

    Fields with "step" in their name are in elements of the weight. ``channel_bytes``, ``tap_bytes`` and
    ``tap_reads`` are distances in the input tensor. ``tap_reads`` is in pixels, the others are in bytes.
    """

    _fields_ = [
        *fields(ctypes.c_void_p, "weight", "workspace"),
        *fields(ctypes.c_int64, "group_step", "row_step", "channel_step"),
        ("tap_steps", ctypes.c_int64 * 3),
        ("groups", Divisor),
        *fields(ctypes.c_int32, "rows", "rows_padded", "channels", "tap_major", "wide"),
        *fields(ctypes.c_uint32, "never", "channel_bytes"),
        ("tap_bytes", ctypes.c_uint32 * 3),
        ("tap_reads", ctypes.c_int32 * 3),
        ("phases", GatherPhase * PHASES),
    ]


class GatherArguments(ctypes.Structure):
    """Arguments of the kernel that computes matrix products.

    ``read_step`` and ``tap_reads`` are in positions, other steps in bytes. If ``is_partial`` is 1, the kernel
    writes float32 partial sums ``[splits][values]``.
    """

    _fields_ = [
        *fields(ctypes.c_void_p, "read", "workspace", "bias", "write"),
        *fields(ctypes.c_int64, "read_group", "write_group", "write_split"),
        *fields(Divisor, "groups", "splits"),
        *fields(ctypes.c_int32, "is_partial", "rows", "rows_padded"),
        *fields(ctypes.c_int32 * 3, "read_step", "read_size", "tap_reads"),
        ("read_sample", ctypes.c_uint32),
        ("read_bytes", ctypes.c_uint32 * 3),
        *fields(ctypes.c_uint32, "write_sample", "write_row"),
        ("write_bytes", ctypes.c_uint32 * 3),
        ("phases", GatherPhase * PHASES),
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
    """A matrix product: forward, or one phase of bwd-data. ``columns`` counts those of all samples."""

    axes: tuple[Axis, ...]
    groups: int
    rows: int
    columns: int
    channels: int
    taps: int

    @property
    def depth(self) -> int:
        """Number of terms in each sum."""
        return self.channels * self.taps

    @property
    def values(self) -> int:
        """Number of values of the result."""
        return self.rows * self.groups * self.columns

    def blocks(self, tile: Tile) -> int:
        """Return the number of blocks that compute the product if its sums are not split."""
        return -(-self.columns // tile.columns) * -(-self.rows // tile.rows) * self.groups

    def packed_bytes(self, tile: Tile) -> tuple[int, int]:
        """Return (bytes of the packed weights, bytes of the table).

        The table has one entry for each term of a sum, with the offset of the term's input value.
        """
        depth = round_up(self.depth, tile.depth)
        return (
            round_up(self.groups * depth * round_up(self.rows, tile.rows) * 4, _ALIGNMENT),
            # Some kernels read one step past the end of the table.
            round_up((depth + tile.depth) * 8, _ALIGNMENT),
        )


def products(direction: str, plain: Geometry) -> list[Product]:
    """Return the matrix products of a direction, with three spatial dimensions.

    Successive taps of a product read ascending positions of the input.
    """
    ends = (plain.filters, plain.channels) if direction == FWD else (plain.channels, plain.filters)
    rows, channels = (end // plain.groups for end in ends)
    return [
        Product(
            tuple(axis.ascending() for axis in axes),
            plain.groups,
            rows,
            plain.batch * prod(axis.count for axis in axes),
            channels,
            prod(axis.taps for axis in axes),
        )
        for axes in gathers(direction, padded(plain))
    ]


def fits(tile: Tile, product: Product) -> bool:
    """Return True if a kernel of this tile can compute the product."""
    rows, depth = round_up(product.rows, tile.rows), round_up(product.depth, tile.depth)
    if max(product.groups * PHASES, rows // tile.rows, round_up(depth, _PACK_DEPTH) // _PACK_DEPTH) > GRID:
        return False
    if rows * depth * 4 >= REACH or product.columns >= REACH:
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
        return [each.blocks(tile) for each in found]

    offered = []
    values = sum(each.values for each in found)
    useful = sum(each.values * each.depth for each in found)
    weights = plain.filters * plain.depth * ITEM_BYTES[dtype]
    for tile in fitting if every else cheapest(fitting, blocks_of):
        blocks = blocks_of(tile)
        filling = splits_for(found, tile, compute_units * tile.blocks_per_unit)
        ways = [
            Option(
                variant=f"{tile.name}/{splits}",
                kernels=tile.kernels | {PACK, *([reduction.KERNEL] if splits > 1 else ())},
                workspace_bytes=workspace_bytes(direction, plain, tile, found, splits),
                flops=2 * useful,
                moved_bytes=weights
                + workspace_bytes(direction, plain, tile, found, 1)
                + (8 * splits * values if splits > 1 else 0),
                launches=sum(1 + any(each.depth for each in batch) for batch in batches(found))
                + (splits > 1),
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


def batches(found: Sequence[Product]) -> list[Sequence[Product]]:
    """Divide products into groups of at most PHASES, one group per launch."""
    return [found[first : first + PHASES] for first in range(0, len(found), PHASES)]


def splits_for(found: Sequence[Product], tile: Tile, busy_blocks: int) -> int:
    """Return the number of partial sums into which to split each sum, or 1 for no split.

    With a split, the total number of blocks is at most ``busy_blocks``.
    """
    depth = round_up(max(each.depth for each in found), tile.depth)
    blocks = sum(each.blocks(tile) for each in found)
    splits = min(busy_blocks // blocks, depth // _LEAST_DEPTH, GRID // (found[0].groups * PHASES))
    # Each partial sum has a whole number of steps, so fewer partial sums than ``splits`` can be enough.
    return -(-depth // split_depth(depth, tile, splits)) if splits > 1 else 1


def split_depth(depth: int, tile: Tile, splits: int) -> int:
    """Return the depth of each of ``splits`` parts, rounded up to whole steps of the tile."""
    return round_up(-(-depth // splits), tile.depth)


def workspace_bytes(
    direction: str, plain: Geometry, tile: Tile, found: Sequence[Product], splits: int
) -> int:
    """Return the bytes of the packed weights, the tables and the partial sums."""
    packed = sum(sum(each.packed_bytes(tile)) for each in found)
    return packed + (reduction.workspace_bytes(_result(direction, plain), splits) if splits > 1 else 0)


def _result(direction: str, plain: Geometry) -> tuple[int, ...]:
    return shapes(plain)["feature" if direction == FWD else "image"]


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
    """Return the launches of a direction, or None if a tensor is too large or the tile does not fit."""
    found, item = products(direction, plain), ITEM_BYTES[dtype]
    if not addressable(plain, item, image, weight, feature) or not all(fits(tile, each) for each in found):
        return None
    forward, shape = direction == FWD, _result(direction, plain)
    read, write = ("image", "feature") if forward else ("feature", "image")
    reading, result = (image, feature) if forward else (feature, image)
    split = splits > 1
    call = _Call(
        forward, tile, splits, item, reading.padded(), weight.padded(),
        (Strides.of(contiguous(shape)) if split else result).padded(), 4 if split else item,
        padded(plain).image if forward else padded(plain).feature, prod(shape),
    )  # fmt: skip
    partial = Pointer("write", "workspace", workspace_bytes(direction, plain, tile, found, 1))
    workspace = Pointer("workspace", "workspace")
    bias = (Pointer("bias", "bias"),) if has_bias and not split else ()
    pointers = (workspace, Pointer("read", read), *bias, partial if split else Pointer("write", write))
    launches: list[Launch] = []
    offset = 0
    for batch in batches(found):
        phases = []
        for each in batch:
            phases.append(call.phase(each, offset))
            offset += sum(each.packed_bytes(tile))
        if any(each.depth for each in batch):
            launches.append(call.pack(batch, phases, (workspace, Pointer("weight", "weight"))))
        launches.append(call.multiply(batch, phases, pointers))
    if split:
        strides = (result.outer, result.inner, *result.axes)
        launches.append(
            reduction.launch(
                shape, strides, splits, workspace_offset=partial.offset, target=Pointer("target", write),
                has_bias=has_bias,
            )
        )  # fmt: skip
    return tuple(launches)


@dataclass(frozen=True)
class _Call:
    """Arguments that all launches of a direction share.

    Attributes:
        reading, weight, writing: strides of the input, of the weight, and of the result or the partial sums.
        item, write_item: bytes of an element of the input, and of the result or the partial sums.
        sizes: sizes of the input.
        values: number of values of the result.
    """

    forward: bool
    tile: GatherTile
    splits: int
    item: int
    reading: Strides
    weight: Strides
    writing: Strides
    write_item: int
    sizes: tuple[int, ...]
    values: int

    def phase(self, product: Product, offset: int) -> GatherPhase:
        """Return the arguments for a product. ``offset`` is the place of its weights in the workspace."""
        axes = product.axes
        depth = round_up(product.depth, self.tile.depth)
        return GatherPhase(
            packed=offset,
            table=offset + product.packed_bytes(self.tile)[0],
            weight=sum(axis.tap_first * step for axis, step in zip(axes, self.weight.axes)),
            write=sum(axis.write_first * step for axis, step in zip(axes, self.writing.axes))
            * self.write_item,
            depth=product.depth,
            depth_padded=depth,
            split_depth=split_depth(depth, self.tile, self.splits),
            columns=product.columns,
            divisors=divisors([axis.count for axis in axes]),
            read_first=tuple(axis.read_first for axis in axes),
            taps=tuple(axis.taps for axis in axes),
        )

    def pack(
        self, batch: Sequence[Product], phases: Sequence[GatherPhase], pointers: tuple[Pointer, ...]
    ) -> Launch:
        """Return the launch that packs weights and writes the tables."""
        product, axes = batch[0], _steps(batch)
        rows = round_up(product.rows, self.tile.rows)
        row_step, channel_step = self.weight.outer, self.weight.inner
        group_step = row_step * (product.rows if self.forward else product.channels)
        if not self.forward:
            row_step, channel_step = channel_step, row_step
        taps = [(axis.read_tap_step, step * self.item) for axis, step in zip(axes, self.reading.axes)]
        arguments = GatherPackArguments(
            group_step=group_step,
            row_step=row_step,
            channel_step=channel_step,
            tap_steps=tuple(axis.tap_step * step for axis, step in zip(axes, self.weight.axes)),
            groups=Divisor.of(product.groups),
            rows=product.rows,
            rows_padded=rows,
            channels=product.channels,
            tap_major=self.reading.inner == 1,
            wide=self.tile.wide,
            never=NEVER,
            channel_bytes=self.reading.inner * self.item,
            tap_bytes=tuple(reads * step for reads, step in taps),
            tap_reads=tuple(reads for reads, _ in taps),
            phases=tuple(phases),
        )
        grid = (
            round_up(rows, _PACK_ROWS) // _PACK_ROWS,
            -(-max(each.depth_padded for each in phases) // _PACK_DEPTH),
            len(batch) * product.groups,
        )
        return Launch(PACK, grid, _PACK_THREADS, arguments, pointers)

    def multiply(
        self, batch: Sequence[Product], phases: Sequence[GatherPhase], pointers: tuple[Pointer, ...]
    ) -> Launch:
        """Return the launch that computes the products."""
        product, axes, item = batch[0], _steps(batch), self.write_item
        rows = round_up(product.rows, self.tile.rows)
        arguments = GatherArguments(
            read_group=product.channels * self.reading.inner * self.item,
            write_group=product.rows * self.writing.inner * item,
            write_split=self.values * item,
            groups=Divisor.of(product.groups),
            splits=Divisor.of(self.splits),
            is_partial=self.splits > 1,
            rows=product.rows,
            rows_padded=rows,
            read_step=tuple(axis.read_step for axis in axes),
            read_size=self.sizes,
            tap_reads=tuple(axis.read_tap_step for axis in axes),
            read_sample=self.reading.outer * self.item,
            read_bytes=tuple(step * self.item for step in self.reading.axes),
            write_sample=self.writing.outer * item,
            write_row=self.writing.inner * item,
            write_bytes=tuple(axis.write_step * step * item for axis, step in zip(axes, self.writing.axes)),
            phases=tuple(phases),
        )
        columns = -(-max(each.columns for each in batch) // self.tile.columns)
        grid = (columns, rows // self.tile.rows, len(batch) * product.groups * self.splits)
        quads = not self.tile.wide and self.reading.inner == 1 and product.channels % 4 == 0
        return Launch(self.tile.kernel(quads), grid, self.tile.threads, arguments, pointers)


def _steps(batch: Sequence[Product]) -> tuple[Axis, ...]:
    """Return an ``Axis`` for each spatial dimension (z, y, x), with steps that apply to all products.

    The other fields of each axis belong to only one of the products.
    """
    dimensions = zip(*(product.axes for product in batch))
    return tuple(next((axis for axis in axes if axis.taps), axes[0]) for axes in dimensions)
