"""Tiles of matrix products: the part of the result that one block computes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rocmprobe.kernels.families.extents import DISPLACEMENTS, TAP_BITS


@dataclass(frozen=True)
class Tile:
    """The part of the result that one block computes.

    Attributes:
        name: name of the tile in a variant.
        rows, columns: size of the tile in the result.
        depth: number of products that each step adds to a sum.
        threads: number of threads in a block.
        share: approximate fraction of multiply-adds among the vector instructions of a step
            (benchmarks/results/kernel_tiles.md).
        wide: True if the tile also supports more taps than a word has bits.
    """

    name: str
    rows: int
    columns: int
    depth: int
    threads: int
    share: float
    wide: bool = False

    def holds(self, taps: Iterable[int], tap_steps: Iterable[int]) -> bool:
        """Return True if one 32-bit word can encode which taps lie inside of the tensor.

        A word has a bit for each tap. In a wide tile, a word stores the offset of the taps in each dimension
        instead, and each offset must fit in its bits. ``taps`` and ``tap_steps`` are, for each dimension, the
        number of taps and the number of positions from one tap to the next.
        """
        if not self.wide:
            return sum(taps) <= TAP_BITS
        reaches = ((count - 1) * step for count, step in zip(taps, tap_steps))
        return all(reach < limit for reach, limit in zip(reaches, DISPLACEMENTS))
