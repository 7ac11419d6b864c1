"""Tiles of matrix products: the part of the result that one block computes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rocmprobe.kernels.families.extents import DISPLACEMENTS, TAP_BITS


@dataclass(frozen=True)
class Tile:
    """A part of the result that one block computes.

    Attributes:
        name: name of the tile in a variant.
        rows, columns, depth: rows and columns of the result, and depth of a step of the sum.
        threads: threads of a block.
        share: approximate share of products in a step's vector instructions
            (benchmarks/results/kernel_tiles.md).
        wide: True if the tile supports more taps than a word has bits for.
    """

    name: str
    rows: int
    columns: int
    depth: int
    threads: int
    share: float
    wide: bool = False

    def holds(self, taps: Iterable[int], tap_steps: Iterable[int]) -> bool:
        """Return True if one word can encode which taps lie inside the tensor.

        A word has a bit for each tap. In a wide tile, a word has displacements instead, which must be short
        enough. ``taps`` and ``tap_steps`` are, for each dimension, the number of taps and the positions from
        one tap to the next.
        """
        if not self.wide:
            return sum(taps) <= TAP_BITS
        reaches = ((count - 1) * step for count, step in zip(taps, tap_steps))
        return all(reach < limit for reach, limit in zip(reaches, DISPLACEMENTS))
