"""Convolution as a product of matrices by kernels of our own: the variants of a problem, what each takes, and
its launches. A family, see ``family.py``.

A variant of fwd and bwd-data is a tile, such as ``128x64x16``; one of bwd-weights is a tile and the number of
parts that the sums are split into, such as ``64x64x8/16``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from rocmprobe.geometry import BWD_WEIGHTS, Geometry
from rocmprobe.kernels.families import gather_gemm, reduction, weights_gemm
from rocmprobe.kernels.families.extents import ITEM_BYTES, Strides
from rocmprobe.kernels.families.family import Option
from rocmprobe.kernels.families.gather_gemm import TILES, GatherTile
from rocmprobe.kernels.families.tiles import Tile
from rocmprobe.kernels.families.weights_gemm import WEIGHTS_TILES, WeightsTile
from rocmprobe.kernels.launches import Launch

SOURCES = (gather_gemm.SOURCE, weights_gemm.SOURCE, *reduction.SOURCES)
STRUCTURES = (*gather_gemm.STRUCTURES, *weights_gemm.STRUCTURES, *reduction.STRUCTURES)

#: Options that are offered for a problem.
_OFFERED = 4
#: Compute units of an RX 5700. The order of the options depends on it, what they compute does not.
COMPUTE_UNITS = 36
#: Threads that use all of a compute unit's arithmetic: two waves for each of its two SIMD units, since the 64
#: sums of a thread do not wait for each other. More threads only hide what memory takes.
_FULL_THREADS = 128
#: What a block does besides the steps of its sums, in k.
_BEGINNING = 16


@dataclass(frozen=True)
class _Weighed:
    """An option, and the values that its blocks load and that go through the workspace."""

    option: Option
    loads: int


def options(direction: str, plain: Geometry, dtype: str, cap: int, every: bool = False) -> list[Option]:
    """At most four ways under ``cap`` bytes of workspace, the one expected to be fastest first; with
    ``every`` one for each tile that can compute it, and for bwd-weights with sums of one part and of two."""
    if dtype not in ITEM_BYTES or len(plain.kernel) > 3:
        return []
    if direction == BWD_WEIGHTS:
        found = _weights_options(plain, cap, every)
    else:
        found = _gather_options(direction, plain, dtype, cap, every)
    # Of those that are about equal, the one that loads the least.
    found.sort(key=lambda each: (-round(each.option.gemm_share, 1), each.loads, -each.option.gemm_share))
    options = [each.option for each in found]
    return options if every else options[:_OFFERED]


def prepare(
    direction: str,
    plain: Geometry,
    dtype: str,
    variant: str,
    *,
    image: Strides,
    weight: Strides,
    feature: Strides,
    has_bias: bool,
    cap: int,
) -> Optional[tuple[Launch, ...]]:
    """The launches of an option; None where one sample reaches over 2^31 bytes, or where the samples must go
    in several launches and the workspace has no room for the sums of all. The bias has one value for each
    channel of the result, next to each other."""
    strides = {"image": image, "weight": weight, "feature": feature}
    if direction != BWD_WEIGHTS:
        return gather_gemm.prepare(direction, plain, dtype, _tile(variant), **strides, has_bias=has_bias)
    tile, splits = _split_tile(variant)
    return weights_gemm.prepare(plain, dtype, tile, splits, **strides, cap=cap)


def _gather_options(direction: str, plain: Geometry, dtype: str, cap: int, every: bool) -> list[_Weighed]:
    products = gather_gemm.products(direction, plain)
    narrow = all(gather_gemm.fits(tile, each) for tile in TILES if not tile.wide for each in products)
    item, found = ITEM_BYTES[dtype], []
    for tile in TILES:
        if (tile.wide and narrow and not every) or not all(gather_gemm.fits(tile, each) for each in products):
            continue
        workspace = sum(sum(gather_gemm.packed_bytes(tile, each)) for each in products)
        if workspace > cap:
            continue
        turns, useful, loads = 0.0, 0, 0
        for each in products:
            columns = plain.batch * each.positions
            blocks = -(-columns // tile.columns) * -(-each.rows // tile.rows) * each.groups
            turns += _turns(blocks, tile.threads) * (each.depth + _BEGINNING)
            useful += columns * each.rows * each.groups * each.depth
            loads += blocks * (tile.rows + tile.columns) * each.depth
        option = Option(
            variant=tile.name,
            workspace_bytes=workspace,
            flops=2 * useful,
            moved_bytes=plain.filters * plain.depth * item + workspace,
            launches=sum(2 if each.depth else 1 for each in products),
            gemm_share=tile.share * _share(useful, turns),
        )
        found.append(_Weighed(option, loads))
    return found


def _weights_options(plain: Geometry, cap: int, every: bool) -> list[_Weighed]:
    narrow = all(weights_gemm.fits(tile, plain) for tile in WEIGHTS_TILES if not tile.wide)
    sizes = weights_gemm.Sizes.of(plain)
    pixels, values = plain.batch * sizes.windows, plain.filters * sizes.columns
    found = []
    for tile in WEIGHTS_TILES:
        if (tile.wide and narrow and not every) or not weights_gemm.fits(tile, plain):
            continue
        blocks = sizes.blocks(tile) * plain.groups
        ways = {weights_gemm.splits_for(plain, tile, busy, cap) for busy in _busy_blocks(tile)}
        for splits in sorted(ways | {1, 2} if every else ways):
            workspace = weights_gemm.workspace_bytes(plain, tile, splits)
            if workspace > cap:
                continue
            turns = _turns(blocks * splits, tile.threads) * (-(-pixels // splits) + _BEGINNING)
            through_workspace = 2 * splits * values if splits > 1 else 0
            option = Option(
                variant=f"{tile.name}/{splits}",
                workspace_bytes=workspace,
                flops=2 * values * pixels,
                moved_bytes=4 * through_workspace,
                launches=3 if splits > 1 else 2,
                gemm_share=tile.share * _share(values * pixels, turns),
            )
            loads = blocks * (tile.rows + tile.columns) * pixels
            found.append(_Weighed(option, loads + through_workspace))
    return found


def _busy_blocks(tile: Tile) -> list[int]:
    """Return the numbers of blocks that sums are split for: enough to fill the device, and twice as many,
    which hides what memory takes."""
    filling = max(1, _FULL_THREADS // tile.threads)
    return [COMPUTE_UNITS * filling, COMPUTE_UNITS * max(filling, 2 * _FULL_THREADS // tile.threads)]


def _turns(blocks: int, threads: int) -> float:
    """How long the compute unit with the most blocks is at work, in the time of a thread on one that is
    full."""
    return max(1.0, -(-blocks // COMPUTE_UNITS) * threads / _FULL_THREADS)


def _share(useful: int, turns: float) -> float:
    """Of the products that a device has time for in ``turns``, of one k each, those that are needed. A thread
    has 64 sums."""
    return min(1.0, useful / max(1.0, turns * COMPUTE_UNITS * _FULL_THREADS * 64))


def _tile(variant: str) -> GatherTile:
    return next(tile for tile in TILES if tile.name == variant)


def _split_tile(variant: str) -> tuple[WeightsTile, int]:
    name, _, splits = variant.partition("/")
    return next(tile for tile in WEIGHTS_TILES if tile.name == name), int(splits)
