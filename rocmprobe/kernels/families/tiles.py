"""Tiles of matrix products: the part of the result that one block computes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rocmprobe.kernels.families.extents import DISPLACEMENTS, TAP_BITS


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
