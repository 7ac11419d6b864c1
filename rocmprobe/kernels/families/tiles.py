"""What a block of a product of matrices computes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rocmprobe.kernels.families.extents import DISPLACEMENTS, TAP_BITS


@dataclass(frozen=True)
class Tile:
    """A part of the result.

    Attributes:
        name: as a variant.
        rows, columns, depth: of the result, and of a step of the sum.
        threads: of a block.
        share: products among the vector instructions of a step, about (benchmarks/results/kernel_tiles.md).
        wide: for more taps than a word has bits for.
    """

    name: str
    rows: int
    columns: int
    depth: int
    threads: int
    share: float
    wide: bool = False

    def holds(self, taps: Iterable[int], tap_steps: Iterable[int]) -> bool:
        """Whether a word can say which taps lie inside: by a bit for each, in a wide tile by displacements.
        For each dimension the number of taps, and the positions from one to the next."""
        if not self.wide:
            return sum(taps) <= TAP_BITS
        reaches = ((count - 1) * step for count, step in zip(taps, tap_steps))
        return all(reach < limit for reach, limit in zip(reaches, DISPLACEMENTS))
