"""Choice of the cheapest tile for a grouped convolution, and its kernel arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil, prod
from typing import Any, Optional

from rocmprobe.kernels.families.extents import Divisor
from rocmprobe.kernels.families.gather import Axis
from rocmprobe.kernels.launches import fields

#: Threads of a block, floats of its LDS, positions of a thread, and rows and columns of taps that a thread
#: adds at once, as in ``source/grouped.hip``.
THREADS, _WORDS, _REPEATS, BLOCK = 256, 5120, 4, 3
_THREAD_BITS = 8
#: Threads of a wave and waves of a block, on RDNA.
_LANES, _WAVES = 32, 8

TILE_FIELDS = [
    *fields(ctypes.c_int32, "fast_bits", "x_bits", "y_bits", "group_bits", "rows", "repeat_x", "repeat_y"),
    *fields(ctypes.c_int32, "adjacent", "width", "height", "staged_width", "tap_row", "tap_column"),
    *fields(ctypes.c_int32, "groups", "channels", "outputs"),
    *fields(Divisor, "staged_height", "group_tiles", "depths", "tiles_y", "tiles_x"),
    *fields(ctypes.c_int32 * 3, "count", "size", "taps", "read_step", "read_first", "tap_step"),
    ("step", ctypes.c_uint32 * 3),
    *fields(ctypes.c_uint32, "sample_step", "group_step", "channel_step"),
]


@dataclass(frozen=True)
class GroupedTile:
    """Shape of a tile.

    Attributes:
        x_bits, y_bits, group_bits: number of threads in x, in y and over groups, as exponents of 2.
        along_x: True if the positions of a thread are in one row, else in one column and adjacent.
        fast: True if neighbouring threads have neighbouring groups, else neighbouring positions.
    """

    x_bits: int
    y_bits: int
    group_bits: int
    along_x: bool
    fast: bool

    def outputs(self, y: Axis, x: Axis) -> tuple[int, int]:
        """Return the number of output positions in y and in x."""
        width, height = 1 << self.x_bits, 1 << self.y_bits
        if self.along_x:
            return min(height, y.count), min(width * _REPEATS, x.count)
        return height * _REPEATS, min(width, x.count)

    def shares_rows(self, y: Axis) -> bool:
        """Return True if adjacent positions read the same values for neighbouring taps."""
        return not self.along_x and y.read_step == 1 and y.read_tap_step == 1 and y.taps >= BLOCK


def _tiles(axes: tuple[Axis, ...], groups: int, fast: bool) -> Iterator[GroupedTile]:
    _, y, x = axes
    for along_x in (False, True):
        most_x = _bits(ceil(x.count / _REPEATS) if along_x else x.count)
        most_y = _bits(y.count if along_x else ceil(y.count / _REPEATS))
        for x_bits, y_bits in product(range(most_x + 1), range(most_y + 1)):
            group_bits = min(_bits(groups), _THREAD_BITS - x_bits - y_bits)
            if group_bits >= 0:
                yield GroupedTile(x_bits, y_bits, group_bits, along_x, fast)


@lru_cache(maxsize=4096)
def cheapest_tile(
    axes: tuple[Axis, ...], groups: int, fast: bool, item: int, outputs: int, staged: bool, weights: int
) -> Optional[GroupedTile]:
    """Return the cheapest tile, or None if ``staged`` is True and no tile fits into LDS.

    The cost is the estimated number of instructions for one sample. The estimate assumes that each group has
    one input channel, and that there is one position and one tap in z. ``outputs`` is the number of channels
    that a thread computes at once. ``weights`` is the number of weights in LDS for each group.
    """
    _, y, x = axes
    taps = max(y.taps * x.taps, 1)

    def cost(tile: GroupedTile) -> float:
        height, width = tile.outputs(y, x)
        blocks = ceil(y.count / height) * ceil(x.count / width) * ceil(groups / (1 << tile.group_bits))
        if not staged:
            # For each tap, the kernel computes an address and checks its bounds.
            return blocks * (100 + _REPEATS * taps * (20 + outputs))
        staged_width = _staged_positions(x, width)
        words = _staged_positions(y, height) * staged_width << tile.group_bits
        if words + 4 + (weights << tile.group_bits) > _WORDS:
            return float("inf")
        line = staged_width << tile.group_bits if tile.fast else staged_width
        loads = ceil(words / line / _WAVES) * ceil(line / _LANES)
        stages = 6 * loads + 60 * ceil((weights << tile.group_bits) / THREADS)
        run = 1 << tile.group_bits if tile.fast else staged_width
        lines = ceil(words / run) * (1 + run * item / 64)
        reads = 1 if tile.shares_rows(y) else 2
        return blocks * (150 + stages + lines / 2 + _REPEATS * taps * (reads + outputs))

    tile = min(_tiles(axes, groups, fast), key=cost)
    return None if cost(tile) == float("inf") else tile


def tile_fields(
    tile: GroupedTile, axes: tuple[Axis, ...], sizes: Sequence[int], groups: int, inputs: int,
    source: Sequence[int],
) -> dict[str, Any]:  # fmt: skip
    """Return the values of TILE_FIELDS, except ``outputs``. ``source`` has the source's strides in bytes."""
    depth, y, x = axes
    height, width = tile.outputs(y, x)
    staged_height, staged_width = _staged_positions(y, height), _staged_positions(x, width)
    fast_bits = tile.group_bits if tile.fast else 0
    return {
        "fast_bits": fast_bits,
        "x_bits": tile.x_bits,
        "y_bits": tile.y_bits,
        "group_bits": tile.group_bits,
        "rows": 1 if tile.along_x else _REPEATS,
        "repeat_x": 1 << tile.x_bits if tile.along_x else 0,
        "repeat_y": 0 if tile.along_x else 1,
        "adjacent": tile.shares_rows(y),
        "width": width,
        "height": height,
        "staged_width": staged_width,
        "staged_height": Divisor.of(staged_height),
        "tap_row": y.read_tap_step * staged_width << fast_bits if y.taps > 1 else 0,
        "tap_column": x.read_tap_step << fast_bits if x.taps > 1 else 0,
        "groups": groups,
        "group_tiles": Divisor.of(ceil(groups / (1 << tile.group_bits))),
        "channels": inputs if all(axis.taps for axis in axes) else 0,
        "depths": Divisor.of(depth.count),
        "tiles_y": Divisor.of(ceil(y.count / height)),
        "tiles_x": Divisor.of(ceil(x.count / width)),
        "count": tuple(axis.count for axis in axes),
        "size": tuple(sizes),
        "taps": tuple(axis.taps for axis in axes),
        "read_step": tuple(axis.read_step for axis in axes),
        "read_first": tuple(axis.read_first for axis in axes),
        "tap_step": tuple(axis.read_tap_step for axis in axes),
        "step": tuple(source[2:]),
        "sample_step": source[0],
        "group_step": inputs * source[1],
        "channel_step": source[1],
    }


def tile_count(values: Mapping[str, Any]) -> int:
    """Return the number of tiles in one sample and one group, from the values of TILE_FIELDS."""
    return prod(values[name].value for name in ("depths", "tiles_y", "tiles_x"))


def along_channels(source: Sequence[int], target: Sequence[int]) -> bool:
    """Return True if neighbouring channels are closer in memory than neighbouring positions of a row."""
    return source[1] + target[1] < source[4] + target[4]


def _bits(count: int) -> int:
    return (count - 1).bit_length()


def _staged_positions(axis: Axis, positions: int) -> int:
    """Return how many positions, including padding, a tile reads to write ``positions`` positions."""
    return (positions - 1) * axis.read_step + (max(axis.taps, 1) - 1) * axis.read_tap_step + 1
