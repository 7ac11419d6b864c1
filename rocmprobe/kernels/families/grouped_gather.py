"""Launches of grouped convolution for fwd and bwd-data."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from math import ceil, prod

from rocmprobe.geometry import BWD_DATA, Geometry
from rocmprobe.kernels.families.gather import Axis
from rocmprobe.kernels.families.grouped_tiles import (
    THREADS,
    TILE_FIELDS,
    LaunchWithCost,
    SideStrides,
    along_channels,
    cheapest_tile,
    tile_fields,
    values_read,
)
from rocmprobe.kernels.launches import Launch, Pointer


class GroupedGatherArguments(ctypes.Structure):
    """``source`` is read, of ``size`` and ``step``; of ``target`` ``count`` positions are written."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("source", "weight", "bias", "target")),
        *TILE_FIELDS,
        *((name, ctypes.c_int32) for name in ("weights_at", "tap_row", "tap_column")),
        *((name, ctypes.c_uint32) for name in ("weight_group_step", "weight_output_step")),
        *((name, ctypes.c_uint32) for name in ("weight_channel_step", "weight_first")),
        ("weight_step", ctypes.c_uint32 * 3),
        *((name, ctypes.c_uint32) for name in ("target_sample_step", "target_group_step")),
        *((name, ctypes.c_uint32) for name in ("target_output_step",)),
        ("target_step", ctypes.c_uint32 * 3),
    ]


def launch_gather(
    direction: str,
    plain: Geometry,
    axes: tuple[Axis, ...],
    sides: SideStrides,
    moves: Mapping[str, int],
    item: int,
    staged: bool,
) -> LaunchWithCost:
    """Return one launch of fwd or bwd-data."""
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
    fast = along_channels(sides.source, sides.target)
    cost, tile = cheapest_tile(axes, plain.groups, fast, staged, item, at_once, False)
    fields = tile_fields(tile, axes, sizes, plain.groups, inputs, sides.source)
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
    read = values_read(tile, axes, sizes, arguments.height, arguments.width)
    values = plain.batch * plain.groups * (inputs * output_tiles * read + outputs * prod(arguments.count))
    weights = grid[0] * plain.batch * plain.groups * inputs * outputs * taps
    cost *= plain.batch * inputs * output_tiles * axes[0].count * axes[0].taps
    launch = Launch(name, grid, THREADS, arguments, pointers)
    return LaunchWithCost(launch, item * (values + weights), cost, tile.staged)
