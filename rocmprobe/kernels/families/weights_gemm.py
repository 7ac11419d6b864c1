"""bwd-weights as a matrix product: host side of ``source/weights_gemm.hip``.

A row of the product is a filter of a group. A column is a channel of the group together with a tap. Each sum
has one term for every pixel (position of the feature) in every sample.

The first launch writes a table of pixels. The table covers a few samples (a period), and is reused for later
samples.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Optional

from rocmprobe.geometry import Geometry
from rocmprobe.kernels.exact import contiguous, shapes
from rocmprobe.kernels.families import reduction
from rocmprobe.kernels.families.extents import (
    GRID,
    ITEM_BYTES,
    REACH,
    Divisor,
    Strides,
    addressable,
    divisors,
    padded,
    round_up,
)
from rocmprobe.kernels.families.family import Option
from rocmprobe.kernels.families.tiles import Tile, cheapest
from rocmprobe.kernels.launches import Launch, Pointer, fields

SOURCE = "weights_gemm.hip"
#: Name of the kernel that writes the table of pixels.
TABLE = "weights_table"
_TABLE_THREADS = 64
_ALIGNMENT = 256
#: Minimum number of pixels in a partial sum. With fewer pixels, a kernel spends at least a fifth of its time
#: on writing partial sums to the workspace.
_LEAST_PIXELS = 192
_MOST_SPLITS = 256
#: Number of pixels that a block copies to LDS at once, as in ``source/weights_gemm.hip``.
_STAGED_PIXELS = 32


class WeightsTableArguments(ctypes.Structure):
    """Arguments of the kernel that writes the table of pixels. Steps are in bytes.

    An entry of the table has the offset of a pixel in the feature and the offset of the first tap in the
    image. For wide tiles, the kernel also writes ``corners``, the image position of each pixel's first tap.
    For other tiles, an entry has one bit for each tap of each dimension, set if the tap is inside the image.
    """

    _fields_ = [
        *fields(ctypes.c_void_p, "pixels", "corners"),
        ("period", ctypes.c_int32),
        ("windows", Divisor * 3),
        *fields(ctypes.c_int32 * 3, "stride", "padding", "dilation", "taps", "sizes"),
        ("feature_sample", ctypes.c_uint32),
        ("feature_bytes", ctypes.c_uint32 * 3),
        ("image_sample", ctypes.c_uint32),
        ("image_bytes", ctypes.c_uint32 * 3),
    ]


class WeightsArguments(ctypes.Structure):
    """Arguments of the kernel that computes the matrix product. Steps are in bytes.

    ``depth`` is the number of pixels of the launch, ``split_depth`` the number of pixels of a partial sum.
    The kernel finds the channel and tap of a column with ``divisors``. If ``is_partial`` is 1, ``target``
    receives float32 partial sums ``[splits][values]``, else the gradient. If ``quads`` is 1, pixels 4n to
    4n + 3 are neighbours in memory for each n.
    """

    _fields_ = [
        *fields(ctypes.c_void_p, "feature", "image", "pixels", "corners", "target"),
        *fields(ctypes.c_int64, "feature_group", "image_group", "target_split", "target_group"),
        *fields(ctypes.c_int32, "rows", "columns", "depth", "split_depth"),
        *fields(Divisor, "splits", "period"),
        ("divisors", Divisor * 3),
        *fields(ctypes.c_uint32, "feature_period", "image_period", "feature_row", "image_row"),
        *fields(ctypes.c_uint32, "target_row", "target_channel"),
        *fields(ctypes.c_int32, "is_partial", "quads"),
        *fields(ctypes.c_uint32 * 3, "target_taps", "tap_bytes"),
        *fields(ctypes.c_int32 * 3, "taps", "dilation", "sizes"),
    ]


STRUCTURES = (WeightsTableArguments, WeightsArguments)


class WeightsTile(Tile):
    """Tile of the kernels for bwd-weights. Each step adds ``depth`` pixels."""

    @property
    def kernel(self) -> str:
        return f"weights_gemm_{self.name}"


WEIGHTS_TILES = (
    WeightsTile("128x64x16", 128, 64, 16, 128, 0.88),
    WeightsTile("64x64x16", 64, 64, 16, 64, 0.86),
    WeightsTile("wide_128x64x16", 128, 64, 16, 128, 0.86, wide=True),
)


@dataclass(frozen=True)
class Sizes:
    """Sizes of the matrix product of one group.

    ``windows`` is the number of pixels in a sample. The table of pixels (see the module's docstring) covers
    ``period_samples`` samples. The property ``period`` is the number of pixels in these samples.
    """

    rows: int
    columns: int
    windows: int
    period_samples: int

    @classmethod
    def of(cls, plain: Geometry) -> Sizes:
        windows = prod(plain.feature)
        return cls(plain.filters // plain.groups, plain.depth, windows, -(-_STAGED_PIXELS // windows))

    @property
    def period(self) -> int:
        return self.period_samples * self.windows

    def blocks(self, tile: Tile) -> int:
        """Return the number of blocks that compute one group if the sums are not split."""
        return -(-self.rows // tile.rows) * -(-self.columns // tile.columns)


def fits(tile: Tile, plain: Geometry) -> bool:
    """Return True if a kernel of this tile can compute the convolution."""
    sizes = Sizes.of(plain)
    if max(plain.groups, -(-sizes.rows // tile.rows)) > GRID:
        return False
    if plain.filters * sizes.columns * 4 >= REACH or sizes.period * 16 >= REACH:
        return False
    geometry_3d = padded(plain)
    return tile.holds(geometry_3d.kernel, geometry_3d.dilation)


def options(plain: Geometry, cap: int, compute_units: int, every: bool = False) -> list[Option]:
    """Return the kernel for a convolution, if it needs at most ``cap`` bytes of workspace.

    If ``every`` is True, return the kernels of all tiles, with and without a split.
    """
    sizes = Sizes.of(plain)
    pixels, values = plain.batch * sizes.windows, plain.filters * sizes.columns
    fitting = [tile for tile in WEIGHTS_TILES if fits(tile, plain)]
    offered = []
    for tile in fitting if every else cheapest(fitting, lambda tile: [sizes.blocks(tile)]):
        filling = splits_for(plain, tile, compute_units * tile.blocks_per_unit, cap)
        for splits in (1, 2) if every else (filling,):
            blocks = [(sizes.blocks(tile) * plain.groups * splits, pixels / splits)]
            option = Option(
                variant=f"{tile.name}/{splits}",
                kernels=frozenset({TABLE, tile.kernel, *([reduction.KERNEL] if splits > 1 else ())}),
                workspace_bytes=workspace_bytes(plain, tile, splits),
                flops=2 * values * pixels,
                moved_bytes=8 * splits * values if splits > 1 else 0,
                launches=2 + (splits > 1),
                gemm_share=tile.expected_share(values * pixels, blocks, compute_units),
            )
            if option.workspace_bytes <= cap:
                offered.append(option)
    return offered


def splits_for(plain: Geometry, tile: Tile, busy_blocks: int, cap: int) -> int:
    """Return the number of partial sums into which to split each sum, or 1 for no split.

    With a split, all parts together use at most ``busy_blocks`` blocks and ``cap`` bytes of workspace.
    """
    sizes = Sizes.of(plain)
    blocks, pixels = sizes.blocks(tile) * plain.groups, plain.batch * sizes.windows
    within = max(0, cap - workspace_bytes(plain, tile, 1) - _ALIGNMENT) // _sums_bytes(plain, 1)
    splits = min(busy_blocks // blocks, pixels // _LEAST_PIXELS, within, _MOST_SPLITS, GRID // plain.groups)
    # Each partial sum has a whole number of steps, so fewer partial sums than ``splits`` can be enough.
    return -(-pixels // split_depth(pixels, tile, splits)) if splits > 1 else 1


def split_depth(pixels: int, tile: Tile, splits: int) -> int:
    """Return the number of pixels in each of ``splits`` parts, rounded up to whole steps of ``tile``."""
    return round_up(-(-pixels // splits), tile.depth)


def workspace_bytes(plain: Geometry, tile: Tile, splits: int) -> int:
    """Return the bytes of the partial sums and the tables."""
    return _partial_bytes(plain, splits) + Sizes.of(plain).period * 16 * (2 if tile.wide else 1)


def _sums_bytes(plain: Geometry, splits: int) -> int:
    return reduction.workspace_bytes(shapes(plain)["weight"], splits)


def _partial_bytes(plain: Geometry, splits: int) -> int:
    return round_up(_sums_bytes(plain, splits), _ALIGNMENT) if splits > 1 else 0


def prepare(
    plain: Geometry, dtype: str, tile: WeightsTile, splits: int, *, image: Strides, weight: Strides,
    feature: Strides, cap: int,
) -> Optional[tuple[Launch, ...]]:  # fmt: skip
    """Return the launches, or None if a tensor is too large, or they need more than ``cap`` bytes."""
    item, shape = ITEM_BYTES[dtype], shapes(plain)["weight"]
    if not addressable(plain, item, image, weight, feature) or not fits(tile, plain):
        return None
    if workspace_bytes(plain, tile, splits) > cap:
        return None
    solid, sizes, table = padded(plain), Sizes.of(plain), _partial_bytes(plain, splits)
    split = splits > 1
    tables = [Pointer("pixels", "workspace", table)]
    if tile.wide:
        tables.append(Pointer("corners", "workspace", table + sizes.period * 16))
    images, features = ([step * item for step in each.padded().axes] for each in (image, feature))
    target, target_item = (Strides.of(contiguous(shape)), 4) if split else (weight, item)
    same = {"taps": solid.kernel, "dilation": solid.dilation, "sizes": solid.image}
    written = WeightsTableArguments(
        period=sizes.period,
        windows=divisors(solid.feature),
        stride=solid.stride,
        padding=solid.padding,
        feature_sample=feature.outer * item % 2**32,
        feature_bytes=tuple(features),
        image_sample=image.outer * item % 2**32,
        image_bytes=tuple(images),
        **same,
    )
    depth = plain.batch * sizes.windows
    arguments = WeightsArguments(
        feature_group=sizes.rows * feature.inner * item,
        image_group=plain.channels // plain.groups * image.inner * item,
        target_split=plain.filters * sizes.columns * target_item,
        target_group=sizes.rows * target.outer * target_item,
        splits=Divisor.of(splits),
        rows=sizes.rows,
        columns=sizes.columns,
        depth=depth,
        split_depth=split_depth(depth, tile, splits),
        period=Divisor.of(sizes.period),
        feature_period=sizes.period_samples * feature.outer * item % 2**32,
        image_period=sizes.period_samples * image.outer * item % 2**32,
        feature_row=feature.inner * item,
        image_row=image.inner * item,
        target_row=target.outer * target_item,
        target_channel=target.inner * target_item,
        is_partial=split,
        quads=_are_quads(solid, feature.padded()),
        target_taps=tuple(step * target_item for step in target.padded().axes),
        tap_bytes=tuple(dilation * step for dilation, step in zip(solid.dilation, images)),
        divisors=divisors(solid.kernel),
        **same,
    )
    grid = (-(-sizes.columns // tile.columns), -(-sizes.rows // tile.rows), plain.groups * splits)
    pointers = (
        *tables, Pointer("image", "image"), Pointer("feature", "feature"),
        Pointer("target", "workspace" if split else "weight"),
    )  # fmt: skip
    blocks = -(-sizes.period // _TABLE_THREADS)
    launches = [
        Launch(TABLE, (blocks, 1, 1), _TABLE_THREADS, written, tuple(tables)),
        Launch(tile.kernel, grid, tile.threads, arguments, pointers),
    ]
    if split:
        launches.append(reduction.launch(shape, (weight.outer, weight.inner, *weight.axes), splits))
    return tuple(launches)


def _are_quads(solid: Geometry, feature: Strides) -> bool:
    """Return True if four successive pixels of the feature are neighbours in memory."""
    steps = contiguous(solid.feature)
    dense = all(size == 1 or step == wanted for size, step, wanted in zip(solid.feature, feature.axes, steps))
    return dense and prod(solid.feature) % 4 == 0
