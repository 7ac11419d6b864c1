"""Tiles of matrix products: the part of the result that one block computes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Callable, TypeVar

from rocmprobe.kernels.families.extents import DISPLACEMENTS, TAP_BITS

#: Number of threads that keep the arithmetic of a compute unit busy: two waves for each of its two SIMD
#: units. This number is enough, because the 64 sums of a thread are independent.
_FULL_THREADS = 128
_SUMS = 64
#: Fixed cost of a block. In the same time, the block could add this many products to each of its sums.
_BEGINNING = 16


@dataclass(frozen=True)
class Tile:
    """The part of a matrix product that one block computes.

    Attributes:
        rows, columns: size of the tile in the result.
        depth: number of products that each step adds to a sum.
        share: approximate fraction of vector instructions that are multiply-adds
            (benchmarks/results/kernel_tiles.md).
        wide: True if the tile supports any number of taps. Only the distance between the first and the last
            tap of each dimension is limited. In other tiles, the tap counts of all dimensions can add up to
            at most 31, e.g. 1 + 3 + 3 for a 3x3 kernel.
    """

    name: str
    rows: int
    columns: int
    depth: int
    threads: int
    share: float
    wide: bool = False

    def holds(self, taps: Iterable[int], tap_steps: Iterable[int]) -> bool:
        """Return True if the tile supports these taps.

        ``taps`` has the number of taps in each dimension. ``tap_steps`` has the distance between neighbouring
        taps in each dimension, in positions.
        """
        if not self.wide:
            return sum(taps) <= TAP_BITS
        reaches = ((count - 1) * step for count, step in zip(taps, tap_steps))
        return all(reach < limit for reach, limit in zip(reaches, DISPLACEMENTS))

    @property
    def blocks_per_unit(self) -> int:
        """Number of blocks that keep a compute unit busy."""
        return max(1, _FULL_THREADS // self.threads)

    def expected_share(self, useful: int, blocks: Sequence[tuple[int, float]], compute_units: int) -> float:
        """Return the share of the device's arithmetic throughput that a launch is expected to use.

        ``useful`` is the number of products of the convolution. ``blocks`` has the number of blocks and the
        depth of each matrix product in the launch.
        """
        of_unit = compute_units * _FULL_THREADS
        all_blocks = sum(count * (depth + _BEGINNING) for count, depth in blocks) * self.threads / of_unit
        longest = max(depth for _, depth in blocks) + _BEGINNING
        return self.share * min(1.0, useful / (max(all_blocks, longest) * of_unit * _SUMS))


AnyTile = TypeVar("AnyTile", bound=Tile)


def cheapest(tiles: Sequence[AnyTile], blocks: Callable[[AnyTile], Sequence[int]]) -> list[AnyTile]:
    """Return the tile with the least work, as a list of at most one tile.

    The work includes the parts of tiles outside of the result. ``blocks`` returns the number of blocks of
    each matrix product. A wide tile is returned only if no other tile fits.
    """
    narrow = [tile for tile in tiles if not tile.wide] or tiles
    return sorted(narrow, key=lambda tile: sum(blocks(tile)) * tile.rows * tile.columns / tile.share)[:1]
