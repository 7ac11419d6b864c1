"""Depthwise convolution and convolution in small groups, all three directions: tiles and launches.

See ``source/grouped.hip`` for how a block computes. Here the tile is chosen, by counting what each possible
one reads and computes, and tensors of any strides become steps in bytes. A tensor that one launch cannot
reach with offsets below 2^31 bytes is computed in several launches over its samples.

Workspace: for bwd-weights splits * filters * channels / groups * taps * 4, else none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod
from typing import Any, Optional

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry
from rocmprobe.kernels.exact import channels_last, contiguous, shapes
from rocmprobe.kernels.families import reduction
from rocmprobe.kernels.families.extents import (
    GRID,
    ITEM_BYTES,
    REACH,
    Strides,
    addressable,
    padded,
    sample_limit,
    span,
)
from rocmprobe.kernels.families.family import Option
from rocmprobe.kernels.families.gather import Axis, gathers
from rocmprobe.kernels.launches import Launch, Pointer

SOURCES = ("grouped.hip",)
VARIANTS = ("staged", "direct")

#: Estimates, never measured: each sum reads LDS, or a cache.
_GEMM_SHARE = {"staged": 0.25, "direct": 0.1}

#: As in source/grouped.hip: threads of a block, and floats of its LDS.
_THREADS = 256
_WORDS = 5120
#: Channels and filters of a group.
_LARGEST_GROUP = 8
#: bwd-weights: blocks that keep the largest of the cards busy, and units that are worth one.
_BUSY = 1024
_SHARE = 4
#: bwd-weights: taps that a block sums, for (staged, filters at once).
_CHUNKS = {(True, 1): (3, 9, 25), (True, 4): (9,), (False, 1): (9,), (False, 4): (9,)}

_TILE_FIELDS: list[tuple[str, Any]] = [
    *((name, ctypes.c_int32) for name in ("fast_bits", "x_bits", "y_bits", "group_bits")),
    *((name, ctypes.c_int32) for name in ("repeat_x", "repeat_y", "width", "height")),
    *((name, ctypes.c_int32) for name in ("staged_width", "staged_height", "words")),
    *((name, ctypes.c_int32) for name in ("groups", "group_tiles", "channels", "outputs")),
    *((name, ctypes.c_int32 * 3) for name in ("tiles", "count", "size", "taps")),
    *((name, ctypes.c_int32 * 3) for name in ("read_step", "read_first", "tap_step", "advance")),
    *((name, ctypes.c_uint32 * 3) for name in ("step", "advance_offset")),
    *((name, ctypes.c_uint32) for name in ("sample_step", "group_step", "channel_step")),
]


class GroupedGatherArguments(ctypes.Structure):
    """``source`` is read, of ``size`` and ``step``; of ``target`` ``count`` positions are written."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("source", "weight", "bias", "target")),
        *_TILE_FIELDS,
        *((name, ctypes.c_int32) for name in ("weights_at", "tap_row", "tap_column")),
        *((name, ctypes.c_uint32) for name in ("weight_group_step", "weight_output_step")),
        *((name, ctypes.c_uint32) for name in ("weight_channel_step", "weight_first")),
        ("weight_step", ctypes.c_uint32 * 3),
        *((name, ctypes.c_uint32) for name in ("target_sample_step", "target_group_step")),
        *((name, ctypes.c_uint32) for name in ("target_output_step",)),
        ("target_step", ctypes.c_uint32 * 3),
    ]


class GroupedWeightsArguments(ctypes.Structure):
    """``source`` is the image, ``partial`` float32 ``[splits][values]``."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("source", "feature", "partial")),
        *_TILE_FIELDS,
        *((name, ctypes.c_int32) for name in ("chunks", "units", "splits", "values")),
        *((name, ctypes.c_uint32) for name in ("feature_sample_step", "feature_group_step")),
        *((name, ctypes.c_uint32) for name in ("feature_output_step",)),
        ("feature_step", ctypes.c_uint32 * 3),
    ]


STRUCTURES = (GroupedGatherArguments, GroupedWeightsArguments)


@dataclass(frozen=True)
class _Sides:
    """The strides, in bytes and of five dimensions, of what is read, of the weight, and of what is written
    (for bwd-weights of the feature)."""

    source: tuple[int, ...]
    weight: tuple[int, ...]
    target: tuple[int, ...]


@dataclass(frozen=True)
class _Tile:
    """Thread bits of x, y and groups; repeats of a thread and along which dimension; whether it is staged."""

    x_bits: int
    y_bits: int
    group_bits: int
    repeats: int
    along_x: bool
    fast: bool
    staged: bool

    @property
    def outputs(self) -> tuple[int, int]:
        """Positions in y and x."""
        width, height = 1 << self.x_bits, 1 << self.y_bits
        return (height, width * self.repeats) if self.along_x else (height * self.repeats, width)


@dataclass(frozen=True)
class _Counted:
    """A launch; the bytes that its threads load and store, whatever caches save; its cost, as the tiles'."""

    launch: Launch
    moved_bytes: int
    cost: float
    staged: bool


def options(direction: str, plain: Geometry, dtype: str, cap: int, every: bool = False) -> list[Option]:
    """As in ``family.py``: "staged" reads every value once for each tile, "direct" once for each tap. The
    figures are those of dense tensors, the workspace is enough for channels first and last. There are no
    more ways for ``every``."""
    item = ITEM_BYTES[dtype]
    found = []
    for variant in VARIANTS:
        first, last = (
            _launches(direction, plain, dtype, variant, *_dense(plain, layout), cap)
            for layout in (False, True)
        )
        if first is None or last is None:
            continue
        if variant == "staged" and not any(each.staged for each in first):
            continue
        workspace = max(_workspace(plain, each) for each in (first, last)) if direction == BWD_WEIGHTS else 0
        moved = sum(each.moved_bytes for each in first) + workspace
        moved += plain.filters * plain.depth * item if direction == BWD_WEIGHTS else 0
        flops = 2 * plain.batch * plain.filters * plain.depth * prod(plain.feature)
        count = len(first) + (direction == BWD_WEIGHTS)
        share = _GEMM_SHARE[variant]
        cost = sum(each.cost for each in first)
        found.append((cost, Option(variant, workspace, flops, moved, count, share)))
    return [option for _, option in sorted(found, key=lambda each: each[0])]


def prepare(
    direction: str,
    plain: Geometry,
    dtype: str,
    variant: str,
    *,
    image: Strides,
    weight: Strides,
    feature: Strides,
    has_bias: bool,
    cap: int,
) -> Optional[tuple[Launch, ...]]:
    """As in ``family.py``; None, too, where the groups are too large. The bias is dense."""
    counted = _launches(direction, plain, dtype, variant, image, weight, feature, cap)
    if counted is None:
        return None
    launches = tuple(each.launch for each in counted)
    if direction == BWD_WEIGHTS:
        splits = sum(each.arguments.splits for each in launches)
        strides = (weight.outer, weight.inner, *weight.axes)
        return (*launches, reduction.launch(shapes(plain)["weight"], strides, splits))
    if has_bias:
        return tuple(replace(each, pointers=(*each.pointers, Pointer("bias", "bias"))) for each in launches)
    return launches


def _workspace(plain: Geometry, launches: Sequence[_Counted]) -> int:
    splits = sum(each.launch.arguments.splits for each in launches)
    return reduction.workspace_bytes(shapes(plain)["weight"], splits)


def _dense(plain: Geometry, last: bool) -> tuple[Strides, Strides, Strides]:
    order = channels_last if last else contiguous
    image, weight, feature = (Strides.of(order(shape)) for shape in shapes(plain).values())
    return image, weight, feature


def _launches(
    direction: str,
    plain: Geometry,
    dtype: str,
    variant: str,
    image_strides: Strides,
    weight_strides: Strides,
    feature_strides: Strides,
    cap: int,
) -> Optional[list[_Counted]]:
    """All but the reduction of bwd-weights."""
    inputs, outputs = plain.channels // plain.groups, plain.filters // plain.groups
    if max(inputs, outputs) > _LARGEST_GROUP or len(plain.kernel) > 3:
        return None
    item = ITEM_BYTES[dtype]
    plain = padded(plain)
    sides = [each.padded() for each in (image_strides, weight_strides, feature_strides)]
    samples = min(addressable(plain, item, sides[0], sides[2]), GRID)
    if not samples or not sample_limit(sides[1], inputs, plain.kernel, item):
        return None
    if span(sides[1], plain.filters, inputs, plain.kernel) * item > REACH:
        return None
    image, weight, feature = (
        tuple(stride * item for stride in (each.outer, each.inner, *each.axes)) for each in sides
    )
    staged = variant == "staged"
    parts = ceil(plain.batch / samples)
    splits = cap // (4 * plain.filters * plain.depth * parts)
    if direction == BWD_WEIGHTS and not splits:
        return None
    found: list[_Counted] = []
    for first in range(0, plain.batch, samples):
        part = replace(plain, batch=min(samples, plain.batch - first))
        moves = {"image": first * image[0], "feature": first * feature[0]}
        if direction == BWD_WEIGHTS:
            before = sum(each.launch.arguments.splits for each in found)
            given = _Sides(image, weight, feature)
            found.append(_weights(part, given, moves, item, staged, before, splits))
            continue
        given = _Sides(image, weight, feature) if direction == FWD else _Sides(feature, weight, image)
        for axes in gathers(direction, part):
            if all(axis.count for axis in axes):
                found.append(_gather(direction, part, axes, given, moves, item, staged))
    return None if any(max(each.launch.grid[1:]) > GRID for each in found) else found


def _staged(axis: Axis, positions: int) -> int:
    """How many positions are read, from the first to the last, for ``positions`` that are written."""
    return (positions - 1) * axis.read_step + (max(axis.taps, 1) - 1) * axis.read_tap_step + 1


def _bits(count: int) -> int:
    """Bits that number ``count`` things."""
    return (count - 1).bit_length()


def _tiles(
    axes: tuple[Axis, ...], groups: int, fast: bool, staged: bool, repeats: Sequence[int]
) -> Iterator[_Tile]:
    _, y, x = axes
    for number, along_x in product(repeats, (False, True)):
        if along_x and number == 1:
            continue
        most_x = _bits(ceil(x.count / number) if along_x else x.count)
        most_y = _bits(y.count if along_x else ceil(y.count / number))
        for x_bits in range(min(most_x, 8) + 1):
            for y_bits in range(min(most_y, 8 - x_bits) + 1):
                group_bits = min(_bits(groups), 8 - x_bits - y_bits)
                yield _Tile(x_bits, y_bits, group_bits, number, along_x, fast, staged)


def _chosen(
    axes: tuple[Axis, ...], groups: int, fast: bool, staged: bool, item: int, outputs: int, weights: bool
) -> tuple[float, _Tile]:
    """The tile of the least cost, and that: instructions of all blocks of one depth and sample, and lines of
    memory, in a rough common unit. ``weights`` says that the weight is the result."""
    _, y, x = axes
    taps = max(y.taps * x.taps, 1)

    def cost(tile: _Tile) -> float:
        height, width = tile.outputs
        height, width = min(height, y.count), min(width, x.count)
        staged_width = _staged(x, width)
        words = _staged(y, height) * staged_width << tile.group_bits
        of_weights = 0 if weights else taps * outputs << tile.group_bits
        blocks = ceil(y.count / height) * ceil(x.count / width) * ceil(groups / (1 << tile.group_bits))
        if not tile.staged:
            # An address and its bounds for every tap.
            return blocks * (100 + tile.repeats * taps * (20 + outputs))
        if words + 4 + of_weights > _WORDS:
            return float("inf")
        run = 1 << tile.group_bits if tile.fast else staged_width
        lines = ceil(words / run) * (1 + run * item / 64)
        stages = 30 * ceil(words / _THREADS) + 60 * ceil(of_weights / _THREADS)
        return blocks * (150 + stages + lines / 2 + tile.repeats * taps * (2 + outputs))

    def least(staged: bool) -> tuple[float, _Tile]:
        repeats = ((4,) if weights else (4, 1)) if staged else (1,)
        costs = [(cost(tile), tile) for tile in _tiles(axes, groups, fast, staged, repeats)]
        return min(costs, key=lambda each: each[0])

    found = least(staged)
    return least(False) if found[0] == float("inf") else found


def _tile_fields(
    tile: _Tile, axes: tuple[Axis, ...], sizes: Sequence[int], groups: int, inputs: int,
    source: Sequence[int],
) -> dict[str, Any]:  # fmt: skip
    depth, y, x = axes
    height, width = (min(each, axis.count) for each, axis in zip(tile.outputs, (y, x)))
    staged_height, staged_width = _staged(y, height), _staged(x, width)
    fast_bits = tile.group_bits if tile.fast else 0
    rows, advance_x = divmod(_THREADS >> fast_bits, staged_width)
    advance_group, advance_y = divmod(rows, staged_height)
    group_step = inputs * source[1]
    step_y, step_x = source[3:]
    wrapped = (
        advance_x * step_x + advance_y * step_y + advance_group * group_step,
        step_y - staged_width * step_x,
        group_step - staged_height * step_y,
    )
    three, three_unsigned = ctypes.c_int32 * 3, ctypes.c_uint32 * 3
    covered = all(axis.taps for axis in axes)
    return {
        "fast_bits": fast_bits,
        "x_bits": tile.x_bits,
        "y_bits": tile.y_bits,
        "group_bits": tile.group_bits,
        "repeat_x": 1 << tile.x_bits if tile.along_x else 0,
        "repeat_y": 0 if tile.along_x else 1 << tile.y_bits,
        "width": width,
        "height": height,
        "staged_width": staged_width,
        "staged_height": staged_height,
        "words": (staged_height * staged_width << tile.group_bits) if tile.staged else 0,
        "groups": groups,
        "group_tiles": ceil(groups / (1 << tile.group_bits)),
        "channels": inputs if covered else 0,
        "tiles": three(depth.count, ceil(y.count / height), ceil(x.count / width)),
        "count": three(*(axis.count for axis in axes)),
        "size": three(*sizes),
        "taps": three(*(axis.taps for axis in axes)),
        "read_step": three(*(axis.read_step for axis in axes)),
        "read_first": three(*(axis.read_first for axis in axes)),
        "tap_step": three(*(axis.read_tap_step for axis in axes)),
        "advance": three(advance_group, advance_y, advance_x),
        "step": three_unsigned(*source[2:]),
        "advance_offset": three_unsigned(*(each % (1 << 32) for each in wrapped)),
        "sample_step": source[0],
        "group_step": group_step,
        "channel_step": source[1],
    }


def _inside(axis: Axis, size: int, positions: int) -> int:
    """Positions inside that all tiles of ``positions`` read together."""
    span = _staged(axis, positions)
    total = 0
    for first in range(0, axis.count, positions):
        low = first * axis.read_step + axis.read_first
        total += max(0, min(low + span, size) - max(low, 0))
    return total


def _reads(tile: _Tile, axes: tuple[Axis, ...], sizes: Sequence[int], height: int, width: int) -> int:
    """Values of one channel that a launch over one sample reads."""
    depth, y, x = axes
    if not all(axis.taps for axis in axes):
        return 0
    depths = _inside_each_tap(depth, sizes[0])
    if tile.staged:
        return depths * _inside(y, sizes[1], height) * _inside(x, sizes[2], width)
    return depths * _inside_each_tap(y, sizes[1]) * _inside_each_tap(x, sizes[2])


def _inside_each_tap(axis: Axis, size: int) -> int:
    """Pairs of a position that is written and a tap that meets the inside."""
    total = 0
    for tap in range(axis.taps):
        origin = axis.read_first + tap * axis.read_tap_step
        low = max(0, ceil(-origin / axis.read_step))
        high = min(axis.count, (size - 1 - origin) // axis.read_step + 1)
        total += max(0, high - low)
    return total


def _along_channels(source: Sequence[int], target: Sequence[int]) -> bool:
    """Whether the channels, more than the positions of a row, are neighbours in memory."""
    return source[1] + target[1] < source[4] + target[4]


def _gather(
    direction: str,
    plain: Geometry,
    axes: tuple[Axis, ...],
    sides: _Sides,
    moves: Mapping[str, int],
    item: int,
    staged: bool,
) -> _Counted:
    """One launch of forward or bwd-data."""
    axes = tuple(axis.ascending() for axis in axes)
    inputs, outputs = plain.channels // plain.groups, plain.filters // plain.groups
    weight_output, weight_input = sides.weight[:2]
    weight_group = outputs * sides.weight[0]
    sizes, source, target = plain.image, "image", "feature"
    if direction == BWD_DATA:
        inputs, outputs = outputs, inputs
        weight_output, weight_input = weight_input, weight_output
        sizes, source, target = plain.feature, "feature", "image"
    at_once = next(number for number in (1, 2, 4, 8) if number >= outputs)
    fast = _along_channels(sides.source, sides.target)
    cost, tile = _chosen(axes, plain.groups, fast, staged, item, at_once, False)
    fields = _tile_fields(tile, axes, sizes, plain.groups, inputs, sides.source)
    _, y, x = axes
    fast_bits = tile.group_bits if tile.fast else 0
    three = ctypes.c_uint32 * 3
    steps = sides.weight[2:]
    weight_first = sum(axis.tap_first * step for axis, step in zip(axes, steps) if axis.taps)
    arguments = GroupedGatherArguments(
        **fields,
        outputs=outputs,
        weights_at=fields["words"] // 4 * 4 + 4,
        tap_row=y.read_tap_step * fields["staged_width"] << fast_bits,
        tap_column=x.read_tap_step << fast_bits,
        weight_group_step=weight_group,
        weight_output_step=weight_output,
        weight_channel_step=weight_input,
        weight_first=weight_first,
        weight_step=three(*(axis.tap_step * step % (1 << 32) for axis, step in zip(axes, steps))),
        target_sample_step=sides.target[0],
        target_group_step=outputs * sides.target[1],
        target_output_step=sides.target[1],
        target_step=three(*(axis.write_step * step for axis, step in zip(axes, sides.target[2:]))),
    )
    target_first = sum(axis.write_first * step for axis, step in zip(axes, sides.target[2:]))
    pointers = (
        Pointer("source", source, moves[source]),
        Pointer("weight", "weight"),
        Pointer("target", target, moves[target] + target_first),
    )
    output_tiles = ceil(outputs / at_once)
    grid = (prod(arguments.tiles), arguments.group_tiles * output_tiles, plain.batch)
    direct = "" if tile.staged else "direct_"
    name = f"grouped_gather_{direct}{at_once}x{tile.repeats}"
    taps = prod(axis.taps for axis in axes)
    read = _reads(tile, axes, sizes, arguments.height, arguments.width)
    values = plain.batch * plain.groups * (inputs * output_tiles * read + outputs * prod(arguments.count))
    weights = grid[0] * plain.batch * plain.groups * inputs * outputs * taps
    cost *= plain.batch * inputs * output_tiles * axes[0].count * axes[0].taps
    launch = Launch(name, grid, _THREADS, arguments, pointers)
    return _Counted(launch, item * (values + weights), cost, tile.staged)


def _weights(
    plain: Geometry,
    sides: _Sides,
    moves: Mapping[str, int],
    item: int,
    staged: bool,
    before: int,
    most: int,
) -> _Counted:
    """bwd-weights over some samples: at most ``most`` splits, behind ``before`` of other launches."""
    (axes,) = gathers(FWD, plain)
    inputs, outputs = plain.channels // plain.groups, plain.filters // plain.groups
    plane = plain.kernel[1] * plain.kernel[2]
    at_once = 1 if outputs == 1 else 4
    fast = _along_channels(sides.source, sides.target)
    cost, tile = _chosen(axes, plain.groups, fast, staged, item, at_once, True)
    kernels = _CHUNKS[tile.staged, at_once]
    chunk = next((number for number in kernels if number >= plane), kernels[-1])
    fields = _tile_fields(tile, axes, plain.image, plain.groups, inputs, sides.source)
    tiles = fields["tiles"]
    units = plain.batch * prod(tiles)
    chunks = ceil(plane / chunk)
    output_tiles = ceil(outputs / at_once)
    depth = chunks * plain.kernel[0] * inputs * output_tiles
    wanted = ceil(_BUSY / (fields["group_tiles"] * depth))
    splits = max(1, min(wanted, units // _SHARE, most, GRID))
    values = plain.filters * inputs * plain.taps
    arguments = GroupedWeightsArguments(
        **fields,
        outputs=outputs,
        chunks=chunks,
        units=units,
        splits=splits,
        values=values,
        feature_sample_step=sides.target[0],
        feature_group_step=outputs * sides.target[1],
        feature_output_step=sides.target[1],
        feature_step=(ctypes.c_uint32 * 3)(*sides.target[2:]),
    )
    pointers = (
        Pointer("source", "image", moves["image"]),
        Pointer("feature", "feature", moves["feature"]),
        Pointer("partial", "workspace", 4 * before * values),
    )
    grid = (arguments.group_tiles, splits, depth)
    direct = "" if tile.staged else "direct_"
    name = f"grouped_weights_{direct}{at_once}x{chunk}"
    read = _reads(tile, axes, plain.image, arguments.height, arguments.width)
    if tile.staged:
        read *= chunks
    depths = _inside_each_tap(axes[0], plain.image[0])
    windows = depths * prod(plain.feature[1:]) * chunks
    loaded = item * plain.batch * plain.groups * inputs * (output_tiles * read + outputs * windows)
    cost *= units / prod(tiles[1:]) * depth
    launch = Launch(name, grid, _THREADS, arguments, pointers)
    return _Counted(launch, loaded + 4 * splits * values, cost, tile.staged)
