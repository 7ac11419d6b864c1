"""Choice of the cheapest tile for a grouped convolution, and its kernel arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Any

from rocmprobe.kernels.families.gather import Axis
from rocmprobe.kernels.launches import Launch

#: Number of threads in a block, and of floats in its LDS, as in source/grouped.hip.
THREADS = 256
_WORDS = 5120

TILE_FIELDS: list[tuple[str, Any]] = [
    *((name, ctypes.c_int32) for name in ("fast_bits", "x_bits", "y_bits", "group_bits")),
    *((name, ctypes.c_int32) for name in ("repeat_x", "repeat_y", "width", "height")),
    *((name, ctypes.c_int32) for name in ("staged_width", "staged_height", "words")),
    *((name, ctypes.c_int32) for name in ("groups", "group_tiles", "channels", "outputs")),
    *((name, ctypes.c_int32 * 3) for name in ("tiles", "count", "size", "taps")),
    *((name, ctypes.c_int32 * 3) for name in ("read_step", "read_first", "tap_step", "advance")),
    *((name, ctypes.c_uint32 * 3) for name in ("step", "advance_offset")),
    *((name, ctypes.c_uint32) for name in ("sample_step", "group_step", "channel_step")),
]


@dataclass(frozen=True)
class SideStrides:
    """Strides in bytes of source, weight and target, each for five dimensions.

    For bwd-weights, the source is the image and the target is the feature.
    """

    source: tuple[int, ...]
    weight: tuple[int, ...]
    target: tuple[int, ...]


@dataclass(frozen=True)
class GroupedTile:
    """Shape of a tile.

    Attributes:
        x_bits, y_bits, group_bits: number of threads in x, in y and over groups, as exponents of 2.
        repeats: number of positions per thread, in x if ``along_x``, else in y.
        staged: True if a block first copies its values to shared memory.
    """

    x_bits: int
    y_bits: int
    group_bits: int
    repeats: int
    along_x: bool
    fast: bool
    staged: bool

    @property
    def outputs(self) -> tuple[int, int]:
        """Number of output positions in y and in x."""
        width, height = 1 << self.x_bits, 1 << self.y_bits
        return (height, width * self.repeats) if self.along_x else (height * self.repeats, width)


@dataclass(frozen=True)
class LaunchWithCost:
    """A launch with its estimated cost.

    ``moved_bytes`` is the number of bytes that the threads load and store, ignoring caches.
    """

    launch: Launch
    moved_bytes: int
    cost: float
    staged: bool


def _bits(count: int) -> int:
    return (count - 1).bit_length()


def _tiles(
    axes: tuple[Axis, ...], groups: int, fast: bool, staged: bool, repeats: Sequence[int]
) -> Iterator[GroupedTile]:
    _, y, x = axes
    for number, along_x in product(repeats, (False, True)):
        if along_x and number == 1:
            continue
        most_x = _bits(ceil(x.count / number) if along_x else x.count)
        most_y = _bits(y.count if along_x else ceil(y.count / number))
        for x_bits in range(min(most_x, 8) + 1):
            for y_bits in range(min(most_y, 8 - x_bits) + 1):
                group_bits = min(_bits(groups), 8 - x_bits - y_bits)
                yield GroupedTile(x_bits, y_bits, group_bits, number, along_x, fast, staged)


def cheapest_tile(
    axes: tuple[Axis, ...], groups: int, fast: bool, staged: bool, item: int, outputs: int, weights: bool
) -> tuple[float, GroupedTile]:
    """Return (cost, tile) of the cheapest tile. ``weights`` is True for bwd-weights.

    The cost is the estimated number of instructions for one sample. The estimate assumes that each group has
    one input channel, and that there is one position and one tap in z.
    """
    _, y, x = axes
    taps = max(y.taps * x.taps, 1)

    def cost(tile: GroupedTile) -> float:
        height, width = tile.outputs
        height, width = min(height, y.count), min(width, x.count)
        staged_width = _staged_positions(x, width)
        words = _staged_positions(y, height) * staged_width << tile.group_bits
        of_weights = 0 if weights else taps * outputs << tile.group_bits
        blocks = ceil(y.count / height) * ceil(x.count / width) * ceil(groups / (1 << tile.group_bits))
        if not tile.staged:
            # For each tap, the kernel computes an address and checks its bounds.
            return blocks * (100 + tile.repeats * taps * (20 + outputs))
        if words + 4 + of_weights > _WORDS:
            return float("inf")
        run = 1 << tile.group_bits if tile.fast else staged_width
        lines = ceil(words / run) * (1 + run * item / 64)
        stages = 30 * ceil(words / THREADS) + 60 * ceil(of_weights / THREADS)
        return blocks * (150 + stages + lines / 2 + tile.repeats * taps * (2 + outputs))

    def least(staged: bool) -> tuple[float, GroupedTile]:
        repeats = ((4,) if weights else (4, 1)) if staged else (1,)
        costs = [(cost(tile), tile) for tile in _tiles(axes, groups, fast, staged, repeats)]
        return min(costs, key=lambda each: each[0])

    found = least(staged)
    return least(False) if found[0] == float("inf") else found


def tile_fields(
    tile: GroupedTile, axes: tuple[Axis, ...], sizes: Sequence[int], groups: int, inputs: int,
    source: Sequence[int],
) -> dict[str, Any]:  # fmt: skip
    depth, y, x = axes
    height, width = (min(each, axis.count) for each, axis in zip(tile.outputs, (y, x)))
    staged_height, staged_width = _staged_positions(y, height), _staged_positions(x, width)
    fast_bits = tile.group_bits if tile.fast else 0
    rows, advance_x = divmod(THREADS >> fast_bits, staged_width)
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


def _count_inside(axis: Axis, size: int, positions: int) -> int:
    """Return the total number of positions that the tiles read along ``axis``, except padding.

    A position counts once for each tile that reads it. Each tile writes at most ``positions`` positions.
    """
    span = _staged_positions(axis, positions)
    total = 0
    for first in range(0, axis.count, positions):
        low = first * axis.read_step + axis.read_first
        total += max(0, min(low + span, size) - max(low, 0))
    return total


def values_read(
    tile: GroupedTile, axes: tuple[Axis, ...], sizes: Sequence[int], height: int, width: int
) -> int:
    """Return how many values of one channel a launch reads for one sample."""
    depth, y, x = axes
    if not all(axis.taps for axis in axes):
        return 0
    depths = count_inside_taps(depth, sizes[0])
    if tile.staged:
        return depths * _count_inside(y, sizes[1], height) * _count_inside(x, sizes[2], width)
    return depths * count_inside_taps(y, sizes[1]) * count_inside_taps(x, sizes[2])


def count_inside_taps(axis: Axis, size: int) -> int:
    """Count the pairs (written position, tap) for which the tap reads inside of the tensor."""
    total = 0
    for tap in range(axis.taps):
        origin = axis.read_first + tap * axis.read_tap_step
        low = max(0, ceil(-origin / axis.read_step))
        high = min(axis.count, (size - 1 - origin) // axis.read_step + 1)
        total += max(0, high - low)
    return total


def along_channels(source: Sequence[int], target: Sequence[int]) -> bool:
    """Return True if neighbouring channels are closer in memory than neighbouring positions of a row."""
    return source[1] + target[1] < source[4] + target[4]


def _staged_positions(axis: Axis, positions: int) -> int:
    """Return how many positions, including padding, a tile reads to write ``positions`` positions."""
    return (positions - 1) * axis.read_step + (max(axis.taps, 1) - 1) * axis.read_tap_step + 1
