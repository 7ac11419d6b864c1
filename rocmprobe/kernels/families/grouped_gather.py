"""Launches of grouped convolution for fwd and bwd-data."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

#: Maximum number of phases (see ``gather.py``) in a launch. A stride of 2 in three dimensions has this many.
_PHASES = 8


class GroupedGatherPhase(ctypes.Structure):
    """One phase of a launch (see ``gather.py``).

    ``size`` is the source's size in pixels. ``step`` has the source's strides in bytes. The phase writes
    ``count`` positions, the first at byte ``target_first``. ``blocks`` has the number of blocks in x and y.
    """

    _fields_ = [
        ("blocks", ctypes.c_uint32 * 2),
        *TILE_FIELDS,
        *((name, ctypes.c_int32) for name in ("weights_at", "tap_row", "tap_column")),
        *((name, ctypes.c_uint32) for name in ("weight_group_step", "weight_output_step")),
        *((name, ctypes.c_uint32) for name in ("weight_channel_step", "weight_first")),
        ("weight_step", ctypes.c_uint32 * 3),
        *((name, ctypes.c_uint32) for name in ("target_sample_step", "target_group_step")),
        *((name, ctypes.c_uint32) for name in ("target_output_step", "target_first")),
        ("target_step", ctypes.c_uint32 * 3),
    ]


class GroupedGatherArguments(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("source", "weight", "bias", "target")),
        ("phase_count", ctypes.c_int32),
        ("phases", GroupedGatherPhase * _PHASES),
    ]


@dataclass(frozen=True)
class _Part:
    kernel: str
    phase: GroupedGatherPhase
    moved_bytes: int
    cost: float
    staged: bool


def launch_gathers(
    direction: str,
    plain: Geometry,
    phases: Sequence[tuple[Axis, ...]],
    sides: SideStrides,
    moves: Mapping[str, int],
    item: int,
    staged: bool,
) -> list[LaunchWithCost]:
    """Return the launches of fwd or bwd-data. ``moves`` has the byte offsets of "image" and "feature"."""
    found = [_part(direction, plain, axes, sides, item, staged) for axes in phases]
    source, target = ("feature", "image") if direction == BWD_DATA else ("image", "feature")
    pointers = (
        Pointer("source", source, moves[source]),
        Pointer("weight", "weight"),
        Pointer("target", target, moves[target]),
    )
    launches = []
    for kernel in dict.fromkeys(part.kernel for part in found):
        same = [part for part in found if part.kernel == kernel]
        for first in range(0, len(same), _PHASES):
            parts = same[first : first + _PHASES]
            arguments = GroupedGatherArguments(
                phase_count=len(parts),
                phases=(GroupedGatherPhase * _PHASES)(*(part.phase for part in parts)),
            )
            blocks = [part.phase.blocks for part in parts]
            grid = (sum(x for x, _ in blocks), max(y for _, y in blocks), plain.batch)
            launches.append(
                LaunchWithCost(
                    Launch(kernel, grid, THREADS, arguments, pointers),
                    sum(part.moved_bytes for part in parts),
                    sum(part.cost for part in parts),
                    any(part.staged for part in parts),
                )
            )
    return launches


def _part(
    direction: str, plain: Geometry, axes: tuple[Axis, ...], sides: SideStrides, item: int, staged: bool
) -> _Part:
    axes = tuple(axis.ascending() for axis in axes)
    inputs, outputs = plain.channels // plain.groups, plain.filters // plain.groups
    weight_output, weight_input = sides.weight[:2]
    weight_group = outputs * sides.weight[0]
    sizes = plain.image
    if direction == BWD_DATA:
        inputs, outputs = outputs, inputs
        weight_output, weight_input = weight_input, weight_output
        sizes = plain.feature
    at_once = next(number for number in (1, 2, 4, 8) if number >= outputs)
    fast = along_channels(sides.source, sides.target)
    cost, tile = cheapest_tile(axes, plain.groups, fast, staged, item, at_once, False)
    fields = tile_fields(tile, axes, sizes, plain.groups, inputs, sides.source)
    _, y, x = axes
    fast_bits = tile.group_bits if tile.fast else 0
    three = ctypes.c_uint32 * 3
    steps = sides.weight[2:]
    weight_first = sum(axis.tap_first * step for axis, step in zip(axes, steps) if axis.taps)
    output_tiles = ceil(outputs / at_once)
    blocks = (prod(fields["tiles"]), fields["group_tiles"] * output_tiles)
    phase = GroupedGatherPhase(
        blocks=(ctypes.c_uint32 * 2)(*blocks),
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
        target_first=sum(axis.write_first * step for axis, step in zip(axes, sides.target[2:])),
        target_step=three(*(axis.write_step * step for axis, step in zip(axes, sides.target[2:]))),
    )
    direct = "" if tile.staged else "direct_"
    taps = prod(axis.taps for axis in axes)
    read = values_read(tile, axes, sizes, phase.height, phase.width)
    values = plain.batch * plain.groups * (inputs * output_tiles * read + outputs * prod(phase.count))
    weights = blocks[0] * plain.batch * plain.groups * inputs * outputs * taps
    cost *= plain.batch * inputs * output_tiles * axes[0].count * axes[0].taps
    kernel = f"grouped_gather_{direct}{at_once}x{tile.repeats}"
    return _Part(kernel, phase, item * (values + weights), cost, tile.staged)
