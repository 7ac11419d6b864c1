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
    Strides,
    addressable,
    padded,
    reciprocal,
    round_up,
    span,
)
from rocmprobe.kernels.families.family import Option
from rocmprobe.kernels.families.tiles import Tile, cheapest
from rocmprobe.kernels.launches import Launch, Pointer

SOURCE = "weights_gemm.hip"
#: Name of the kernel that writes the table of pixels.
TABLE = "weights_table"
_TABLE_THREADS = 64
_ALIGNMENT = 256
#: Minimum number of steps (see ``tiles.Tile.depth``) in a partial sum. With fewer steps, a kernel spends at
#: least a fifth of its time on writing partial sums to the workspace.
_LEAST_STEPS = 24
_MOST_SPLITS = 256
#: Number of pixels that a block copies to LDS at once, as in ``source/weights_gemm.hip``.
_STAGED_PIXELS = 32

_Three = ctypes.c_int32 * 3
_ThreeUnsigned = ctypes.c_uint32 * 3


class WeightsTableArguments(ctypes.Structure):
    """Arguments of the kernel that writes the table of pixels. Steps are in bytes.

    An entry of the table has the offset of a pixel in the feature and the offset of the first tap in the
    image. For wide tiles, the kernel also writes ``corners``, the image position of each pixel's first tap.
    For other tiles, an entry has one bit for each tap of each dimension, set if the tap is inside the image.
    """

    _fields_ = [
        ("pixels", ctypes.c_void_p),
        ("corners", ctypes.c_void_p),
        ("period", ctypes.c_int32),
        ("windows", _Three),
        ("stride", _Three),
        ("padding", _Three),
        ("dilation", _Three),
        ("taps", _Three),
        ("sizes", _Three),
        ("feature_sample", ctypes.c_uint32),
        ("feature_bytes", _ThreeUnsigned),
        ("image_sample", ctypes.c_uint32),
        ("image_bytes", _ThreeUnsigned),
    ]


class WeightsArguments(ctypes.Structure):
    """Arguments of the kernel that computes the matrix product. Steps are in bytes.

    ``depth`` is the number of pixels of the launch, ``split_depth`` the number of pixels of a partial sum.
    The kernel divides by ``divisors`` with ``multipliers`` and ``shifts`` (see ``extents.reciprocal``). If
    ``is_partial`` is 1, ``target`` receives float32 partial sums ``[splits][values]``, else the gradient. If
    ``quads`` is 1, pixels 4n to 4n + 3 are neighbours in memory for each n.
    """

    _fields_ = [
        ("feature", ctypes.c_void_p),
        ("image", ctypes.c_void_p),
        ("pixels", ctypes.c_void_p),
        ("corners", ctypes.c_void_p),
        ("target", ctypes.c_void_p),
        ("feature_group", ctypes.c_int64),
        ("image_group", ctypes.c_int64),
        ("target_split", ctypes.c_int64),
        ("target_group", ctypes.c_int64),
        ("groups", ctypes.c_int32),
        ("splits", ctypes.c_int32),
        ("rows", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("depth", ctypes.c_int32),
        ("split_depth", ctypes.c_int32),
        ("period", ctypes.c_int32),
        ("period_multiplier", ctypes.c_uint32),
        ("period_shift", ctypes.c_int32),
        ("feature_period", ctypes.c_uint32),
        ("image_period", ctypes.c_uint32),
        ("feature_row", ctypes.c_uint32),
        ("image_row", ctypes.c_uint32),
        ("target_row", ctypes.c_uint32),
        ("target_channel", ctypes.c_uint32),
        ("target_taps", _ThreeUnsigned),
        ("is_partial", ctypes.c_int32),
        ("quads", ctypes.c_int32),
        ("tap_bytes", _ThreeUnsigned),
        ("divisors", _ThreeUnsigned),
        ("multipliers", _ThreeUnsigned),
        ("shifts", _Three),
        ("taps", _Three),
        ("dilation", _Three),
        ("sizes", _Three),
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

    def blocks(self, tile: WeightsTile) -> int:
        """Return the number of blocks that compute one group if the sums are not split."""
        return -(-self.rows // tile.rows) * -(-self.columns // tile.columns)


def fits(tile: WeightsTile, plain: Geometry) -> bool:
    """Return True if a kernel of this tile can compute the convolution."""
    sizes = Sizes.of(plain)
    if max(plain.groups, -(-sizes.rows // tile.rows)) > GRID:
        return False
    if plain.filters * sizes.columns * 4 >= REACH or sizes.period * 16 >= REACH:
        return False
    geometry_3d = padded(plain)
    return tile.holds(geometry_3d.kernel, geometry_3d.dilation)


def options(plain: Geometry, dtype: str, cap: int, compute_units: int, every: bool = False) -> list[Option]:
    """Return the kernel for a convolution, if it needs at most ``cap`` bytes of workspace.

    If ``every`` is True, return the kernels of all tiles, with and without a split.
    """
    sizes, chunks = Sizes.of(plain), chunks_of_dense(plain, dtype)
    pixels, values = plain.batch * sizes.windows, plain.filters * sizes.columns
    fitting = [tile for tile in WEIGHTS_TILES if fits(tile, plain)]
    tiles = fitting if every else cheapest(fitting, lambda tile: [sizes.blocks(tile)])
    offered = []
    for tile in tiles:
        blocks = sizes.blocks(tile) * plain.groups
        filling = splits_for(plain, tile, compute_units * tile.blocks_per_unit, cap)
        # If one launch cannot address all samples, there are ``chunks`` launches. Each launch writes its own
        # partial sums, so there are at least ``chunks`` partial sums for each sum.
        ways = [
            Option(
                variant=f"{tile.name}/{splits}",
                kernels=frozenset({TABLE, tile.kernel, *([reduction.KERNEL] if splits > 1 else ())}),
                workspace_bytes=workspace_bytes(plain, tile, splits),
                flops=2 * values * pixels,
                moved_bytes=8 * splits * values if splits > 1 else 0,
                launches=1 + chunks + (splits > 1),
                gemm_share=tile.expected_share(
                    values * pixels, [(blocks * splits, pixels / splits)], compute_units
                ),
            )
            for splits in (max(each, chunks) for each in ((1, 2) if every else (filling,)))
        ]
        offered += [each for each in ways if each.workspace_bytes <= cap]
    return offered


def splits_for(plain: Geometry, tile: WeightsTile, busy_blocks: int, cap: int) -> int:
    """Return the number of partial sums into which to split each sum, or 1 for no split.

    With a split, all parts together use at most ``busy_blocks`` blocks and ``cap`` bytes of workspace.
    """
    sizes = Sizes.of(plain)
    blocks, pixels = sizes.blocks(tile) * plain.groups, plain.batch * sizes.windows
    splits = min(
        busy_blocks // blocks,
        pixels // (tile.depth * _LEAST_STEPS),
        _MOST_SPLITS,
        GRID // plain.groups,
    )
    while splits > 1 and workspace_bytes(plain, tile, splits) > cap:
        splits -= 1
    # Each partial sum has a whole number of steps, so fewer partial sums than ``splits`` can be enough.
    return -(-pixels // split_depth(pixels, tile, splits)) if splits > 1 else 1


def split_depth(pixels: int, tile: WeightsTile, splits: int) -> int:
    """Return the number of pixels in each of ``splits`` parts, rounded up to whole steps of ``tile``."""
    return round_up(-(-pixels // splits), tile.depth)


def workspace_bytes(plain: Geometry, tile: WeightsTile, parts: int) -> int:
    tables = Sizes.of(plain).period * 16 * (2 if tile.wide else 1)
    return _partial_bytes(plain, parts) + tables


def chunk(plain: Geometry, dtype: str, image: Strides, feature: Strides) -> int:
    """Return how many samples one launch can address, or 0 if a single sample is too large."""
    limit = addressable(plain, ITEM_BYTES[dtype], image, feature)
    return min(limit, (REACH // 2) // prod(plain.feature))


def chunks_of_dense(plain: Geometry, dtype: str) -> int:
    """Return the number of launches for a contiguous image and feature."""
    dense = shapes(plain)
    samples = chunk(plain, dtype, *(Strides.of(contiguous(dense[name])) for name in ("image", "feature")))
    return -(-plain.batch // samples) if samples else 1


def prepare(
    plain: Geometry,
    dtype: str,
    tile: WeightsTile,
    splits: int,
    *,
    image: Strides,
    weight: Strides,
    feature: Strides,
    cap: int,
) -> Optional[tuple[Launch, ...]]:
    """Return the launches, or None if the kernels cannot address a tensor or need more than ``cap`` bytes."""
    samples = chunk(plain, dtype, image, feature)
    if samples < 1 or not fits(tile, plain):
        return None
    chunks = -(-plain.batch // samples)
    splits = max(1, splits // chunks)
    parts = splits * chunks
    if workspace_bytes(plain, tile, parts) > cap:
        return None
    item, shape = ITEM_BYTES[dtype], shapes(plain)["weight"]
    if parts == 1 and span(weight, shape[0], shape[1], shape[2:]) * item > REACH:
        return None
    solid, sizes = padded(plain), Sizes.of(plain)
    table = _partial_bytes(plain, parts)
    tables = [Pointer("pixels", "workspace", table)]
    if tile.wide:
        tables.append(Pointer("corners", "workspace", table + sizes.period * 16))
    launches = [_table(solid, sizes, item, image.padded(), feature.padded(), tuple(tables))]
    target, target_item = (weight, item) if parts == 1 else (Strides.of(contiguous(shape)), 4)
    for number in range(chunks):
        first = number * samples
        pointers = (
            *tables,
            Pointer("image", "image", first * image.outer * item),
            Pointer("feature", "feature", first * feature.outer * item),
            Pointer("target", "weight")
            if parts == 1
            else Pointer("target", "workspace", number * splits * prod(shape) * 4),
        )
        count = min(samples, plain.batch - first)
        launches.append(
            _multiply(
                solid, sizes, tile, splits, item, image.padded(), feature.padded(), count,
                target.padded(), target_item, parts > 1, pointers,
            )
        )  # fmt: skip
    if parts > 1:
        launches.append(reduction.launch(shape, (weight.outer, weight.inner, *weight.axes), parts))
    return tuple(launches)


def _partial_bytes(plain: Geometry, parts: int) -> int:
    if parts == 1:
        return 0
    return round_up(reduction.workspace_bytes(shapes(plain)["weight"], parts), _ALIGNMENT)


def _table(
    solid: Geometry, sizes: Sizes, item: int, image: Strides, feature: Strides, pointers: tuple[Pointer, ...]
) -> Launch:
    arguments = WeightsTableArguments(
        period=sizes.period,
        windows=_Three(*solid.feature),
        stride=_Three(*solid.stride),
        padding=_Three(*solid.padding),
        dilation=_Three(*solid.dilation),
        taps=_Three(*solid.kernel),
        sizes=_Three(*solid.image),
        feature_sample=feature.outer * item % 2**32,
        feature_bytes=_ThreeUnsigned(*(step * item for step in feature.axes)),
        image_sample=image.outer * item % 2**32,
        image_bytes=_ThreeUnsigned(*(step * item for step in image.axes)),
    )
    blocks = -(-sizes.period // _TABLE_THREADS)
    return Launch(TABLE, (blocks, 1, 1), _TABLE_THREADS, arguments, pointers)


def _multiply(
    solid: Geometry,
    sizes: Sizes,
    tile: WeightsTile,
    splits: int,
    item: int,
    image: Strides,
    feature: Strides,
    samples: int,
    target: Strides,
    target_item: int,
    is_partial: bool,
    pointers: tuple[Pointer, ...],
) -> Launch:
    depth = samples * sizes.windows
    divisors = (solid.taps, solid.kernel[1] * solid.kernel[2], solid.kernel[2])
    multipliers, shifts = zip(*map(reciprocal, divisors))
    period_multiplier, period_shift = reciprocal(sizes.period)
    arguments = WeightsArguments(
        feature_group=sizes.rows * feature.inner * item,
        image_group=solid.channels // solid.groups * image.inner * item,
        target_split=solid.filters * sizes.columns * target_item,
        target_group=sizes.rows * target.outer * target_item,
        groups=solid.groups,
        splits=splits,
        rows=sizes.rows,
        columns=sizes.columns,
        depth=depth,
        split_depth=split_depth(depth, tile, splits),
        period=sizes.period,
        period_multiplier=period_multiplier,
        period_shift=period_shift,
        feature_period=sizes.period_samples * feature.outer * item % 2**32,
        image_period=sizes.period_samples * image.outer * item % 2**32,
        feature_row=feature.inner * item,
        image_row=image.inner * item,
        target_row=target.outer * target_item,
        target_channel=target.inner * target_item,
        target_taps=_ThreeUnsigned(*(step * target_item for step in target.axes)),
        is_partial=is_partial,
        quads=_are_quads(solid, feature),
        tap_bytes=_ThreeUnsigned(
            *(dilation * step * item for dilation, step in zip(solid.dilation, image.axes))
        ),
        divisors=_ThreeUnsigned(*divisors),
        multipliers=_ThreeUnsigned(*multipliers),
        shifts=_Three(*shifts),
        taps=_Three(*solid.kernel),
        dilation=_Three(*solid.dilation),
        sizes=_Three(*solid.image),
    )
    grid = (
        -(-sizes.columns // tile.columns),
        -(-sizes.rows // tile.rows),
        solid.groups * splits,
    )
    return Launch(tile.kernel, grid, tile.threads, arguments, pointers)


def _are_quads(solid: Geometry, feature: Strides) -> bool:
    """Return True if four successive pixels of the feature are neighbours in memory."""
    steps = contiguous(solid.feature)
    dense = all(size == 1 or step == wanted for size, step, wanted in zip(solid.feature, feature.axes, steps))
    return dense and prod(solid.feature) % 4 == 0
