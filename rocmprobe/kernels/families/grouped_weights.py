"""Launches of grouped convolution for bwd-weights."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from math import ceil, prod

from rocmprobe.geometry import FWD, Geometry
from rocmprobe.kernels.exact import contiguous, shapes
from rocmprobe.kernels.families.extents import GRID
from rocmprobe.kernels.families.gather import gathers
from rocmprobe.kernels.families.grouped_tiles import (
    THREADS,
    TILE_FIELDS,
    LaunchWithCost,
    SideStrides,
    along_channels,
    cheapest_tile,
    count_inside_taps,
    tile_fields,
    values_read,
)
from rocmprobe.kernels.launches import Launch, Pointer

#: Number of blocks that keep the largest card busy, and minimum number of units per block. A unit is one tile
#: of one sample.
_BUSY = 1024
_SHARE = 4
#: Numbers of taps whose gradients one block can compute. The key is (``GroupedTile.staged``, number of
#: filters that a thread computes at once).
_CHUNKS = {(True, 1): (3, 9, 25), (True, 4): (9,), (False, 1): (9,), (False, 4): (9,)}


class GroupedWeightsArguments(ctypes.Structure):
    """Arguments of a launch for bwd-weights. ``source`` is the image.

    If ``is_partial`` is 1, ``target`` receives float32 partial sums ``[splits][values]``, else the gradient.
    Steps of ``target`` are in bytes.
    """

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("source", "feature", "target")),
        *TILE_FIELDS,
        *((name, ctypes.c_int32) for name in ("chunks", "units", "splits", "is_partial")),
        *((name, ctypes.c_uint32) for name in ("feature_sample_step", "feature_group_step")),
        *((name, ctypes.c_uint32) for name in ("feature_output_step",)),
        ("feature_step", ctypes.c_uint32 * 3),
        *((name, ctypes.c_uint32) for name in ("target_row", "target_channel", "target_split")),
        ("target_tap", ctypes.c_uint32 * 3),
    ]


def launch_weights(
    plain: Geometry,
    sides: SideStrides,
    moves: Mapping[str, int],
    item: int,
    staged: bool,
    before: int,
    most: int,
    alone: bool,
) -> LaunchWithCost:
    """Return the launch of bwd-weights for some of the samples.

    The launch splits each sum into at most ``most`` partial sums. ``before`` is the number of partial sums
    from earlier launches. ``alone`` is True if this launch has all samples.
    """
    (axes,) = gathers(FWD, plain)
    inputs, outputs = plain.channels // plain.groups, plain.filters // plain.groups
    plane = plain.kernel[1] * plain.kernel[2]
    at_once = 1 if outputs == 1 else 4
    fast = along_channels(sides.source, sides.target)
    cost, tile = cheapest_tile(axes, plain.groups, fast, staged, item, at_once, True)
    kernels = _CHUNKS[tile.staged, at_once]
    chunk = next((number for number in kernels if number >= plane), kernels[-1])
    fields = tile_fields(tile, axes, plain.image, plain.groups, inputs, sides.source)
    tiles = fields["tiles"]
    units = plain.batch * prod(tiles)
    chunks = ceil(plane / chunk)
    output_tiles = ceil(outputs / at_once)
    depth = chunks * plain.kernel[0] * inputs * output_tiles
    wanted = ceil(_BUSY / (fields["group_tiles"] * depth))
    splits = max(1, min(wanted, units // _SHARE, most, GRID))
    values = plain.filters * inputs * plain.taps
    is_partial = not alone or splits > 1
    partial_steps = [4 * step for step in contiguous(shapes(plain)["weight"])]
    row, channel, *taps = partial_steps if is_partial else sides.weight
    arguments = GroupedWeightsArguments(
        **fields,
        outputs=outputs,
        chunks=chunks,
        units=units,
        splits=splits,
        is_partial=is_partial,
        feature_sample_step=sides.target[0],
        feature_group_step=outputs * sides.target[1],
        feature_output_step=sides.target[1],
        feature_step=(ctypes.c_uint32 * 3)(*sides.target[2:]),
        target_row=row,
        target_channel=channel,
        target_split=4 * values,
        target_tap=(ctypes.c_uint32 * 3)(*taps),
    )
    pointers = (
        Pointer("source", "image", moves["image"]),
        Pointer("feature", "feature", moves["feature"]),
        Pointer("target", "workspace", 4 * before * values) if is_partial else Pointer("target", "weight"),
    )
    grid = (arguments.group_tiles, splits, depth)
    direct = "" if tile.staged else "direct_"
    name = f"grouped_weights_{direct}{at_once}x{chunk}"
    read = values_read(tile, axes, plain.image, arguments.height, arguments.width)
    if tile.staged:
        read *= chunks
    depths = count_inside_taps(axes[0], plain.image[0])
    windows = depths * prod(plain.feature[1:]) * chunks
    loaded = item * plain.batch * plain.groups * inputs * (output_tiles * read + outputs * windows)
    cost *= units / prod(tiles[1:]) * depth
    launch = Launch(name, grid, THREADS, arguments, pointers)
    stored = 4 * splits * values if is_partial else item * values
    return LaunchWithCost(launch, loaded + stored, cost, tile.staged)
