"""Family of kernels that compute convolution as a matrix product.

The name of a variant has the tile and the number of partial sums per sum, e.g. ``64x64x8/16``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from rocmprobe.geometry import BWD_WEIGHTS, FWD, Geometry
from rocmprobe.kernels.families import gather_gemm, reduction, weights_gemm
from rocmprobe.kernels.families.extents import ITEM_BYTES, Strides
from rocmprobe.kernels.families.family import Option
from rocmprobe.kernels.families.gather_gemm import TILES
from rocmprobe.kernels.families.tiles import Tile
from rocmprobe.kernels.families.weights_gemm import WEIGHTS_TILES
from rocmprobe.kernels.launches import Launch

SOURCES = (gather_gemm.SOURCE, weights_gemm.SOURCE, *reduction.SOURCES)
STRUCTURES = (*gather_gemm.STRUCTURES, *weights_gemm.STRUCTURES, *reduction.STRUCTURES)

_OFFERED = 4
#: Number of compute units of an RX 5700. It influences the order of the options, but not the results.
COMPUTE_UNITS = 36
#: Number of threads that keep the arithmetic of a compute unit busy: two waves for each of its two SIMD
#: units. This number is enough, because the 64 sums of a thread are independent. More threads only hide the
#: latency of memory.
_FULL_THREADS = 128
#: Fixed cost of a block. In the same time, the block could add this many products to each of its sums.
_BEGINNING = 16
#: Reading unpacked weights can be faster if at most this many tiles use the same weights. With more tiles,
#: packing costs little: it moves less than a third of the bytes that the tiles move.
_FEW_COLUMNS = 4
#: Estimated time of the launch that adds the partial sums: about 5 microseconds. The unit is the turn, which
#: ``_share`` defines.
_SUM_LAUNCH = 64


@dataclass(frozen=True)
class _RankedOption:
    """An option with its sort keys.

    Attributes:
        share: like ``gemm_share`` of the option, but including the time of the launch that adds the partial
            sums.
        loads: estimated number of values loaded, plus the number of values stored in the workspace.
    """

    option: Option
    share: float
    loads: int


def options(direction: str, plain: Geometry, dtype: str, cap: int, every: bool = False) -> list[Option]:
    """Return at most four kernels with at most ``cap`` bytes of workspace, the fastest by estimate first.

    If ``every`` is True, return up to two kernels for every tile that can compute the convolution.
    """
    if dtype not in ITEM_BYTES or len(plain.kernel) > 3:
        return []
    if direction == BWD_WEIGHTS:
        found = _weights_options(plain, dtype, cap, every)
    else:
        found = _gather_options(direction, plain, dtype, cap, every)
    # Among options that are about equally fast, prefer the one that loads the fewest values.
    found.sort(key=lambda each: (-round(each.share, 1), each.loads, -each.share))
    options = [each.option for each in found]
    if every:
        return options
    # Always include an option without splits, so that a measurement can show whether splitting is slower.
    whole = next((each for each in options if each.variant.endswith("/1")), None)
    offered = options[:_OFFERED]
    return offered if whole is None or whole in offered else [*offered[:-1], whole]


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
    """Return the launches of the kernel ``variant``. The bias is contiguous.

    Return None if the kernel does not support the convolution, if a sample spans more than 2^31 bytes, or if
    bwd-weights needs more than ``cap`` bytes of workspace.
    """
    strides = {"image": image, "weight": weight, "feature": feature}
    name, _, parts = variant.partition("/")
    if direction == BWD_WEIGHTS:
        tile = next(tile for tile in WEIGHTS_TILES if tile.name == name)
        return weights_gemm.prepare(plain, dtype, tile, int(parts), **strides, cap=cap)
    through = next(tile for tile in TILES if tile.name == name)
    return gather_gemm.prepare(direction, plain, dtype, through, int(parts), **strides, has_bias=has_bias)


def _gather_options(
    direction: str, plain: Geometry, dtype: str, cap: int, every: bool
) -> list[_RankedOption]:
    products = gather_gemm.products(direction, plain)
    narrow = all(gather_gemm.fits(tile, each) for tile in TILES if not tile.wide for each in products)
    item, found = ITEM_BYTES[dtype], []
    values = plain.batch * sum(each.rows * each.groups * each.positions for each in products)
    useful = plain.batch * sum(each.rows * each.groups * each.positions * each.depth for each in products)
    for tile in TILES:
        if (tile.wide and narrow and not every) or not all(gather_gemm.fits(tile, each) for each in products):
            continue
        columns = sum(-(-plain.batch * each.positions // tile.columns) for each in products)
        if tile.direct and (direction != FWD or (columns > _FEW_COLUMNS and not every)):
            continue
        blocks = [
            -(-plain.batch * each.positions // tile.columns) * -(-each.rows // tile.rows) * each.groups
            for each in products
        ]
        packed = 0 if tile.direct else gather_gemm.workspace_bytes(direction, plain, tile, products, 1) // 4
        loads = sum(count * (tile.rows + tile.columns) * each.depth for count, each in zip(blocks, products))
        filling = gather_gemm.splits_for(products, tile, sum(blocks), _busy_blocks(tile)[0])
        for splits in sorted({1, 2} if every else {1, filling}):
            workspace = gather_gemm.workspace_bytes(direction, plain, tile, products, splits)
            if workspace > cap:
                continue
            depths: list[float] = [-(-each.depth // splits) + _BEGINNING for each in products]
            turns = 0.0
            for first in range(0, len(products), gather_gemm.PHASES):
                shared = slice(first, first + gather_gemm.PHASES)
                turns += _shared_turns(blocks[shared], depths[shared], tile, splits)
            through_workspace = 2 * splits * values if splits > 1 else 0
            option = Option(
                variant=f"{tile.name}/{splits}",
                workspace_bytes=workspace,
                flops=2 * useful,
                moved_bytes=(plain.filters * plain.depth * item if packed else 0)
                + 4 * (packed + through_workspace),
                launches=gather_gemm.launch_count(products, splits),
                gemm_share=tile.share * _share(useful, turns),
            )
            share = tile.share * _share(useful, turns + (_SUM_LAUNCH if splits > 1 else 0))
            found.append(_RankedOption(option, share, loads + 2 * packed + through_workspace))
    return found


def _shared_turns(blocks: Sequence[int], depths: Sequence[float], tile: Tile, splits: int) -> float:
    """Return the estimated time of one launch that computes several matrix products.

    The unit of the time is the turn (see :func:`_share`). ``blocks`` and ``depths`` have one value for each
    product.
    """
    total = splits * sum(blocks)
    if len(set(depths)) == 1:
        return _turns(total, tile.threads) * depths[0]
    # Short blocks fill the gaps between long blocks, so the time depends on the mean depth.
    of_block = max(1.0, tile.threads / _FULL_THREADS)
    mean = splits * sum(count * depth for count, depth in zip(blocks, depths)) / total
    return max(total / COMPUTE_UNITS * tile.threads / _FULL_THREADS * mean, of_block * max(depths))


def _weights_options(plain: Geometry, dtype: str, cap: int, every: bool) -> list[_RankedOption]:
    chunks = weights_gemm.chunks_of_dense(plain, dtype)
    narrow = all(weights_gemm.fits(tile, plain) for tile in WEIGHTS_TILES if not tile.wide)
    sizes = weights_gemm.Sizes.of(plain)
    pixels, values = plain.batch * sizes.windows, plain.filters * sizes.columns
    found = []
    for tile in WEIGHTS_TILES:
        if (tile.wide and narrow and not every) or not weights_gemm.fits(tile, plain):
            continue
        blocks = sizes.blocks(tile) * plain.groups
        ways = {weights_gemm.splits_for(plain, tile, busy, cap) for busy in _busy_blocks(tile)}
        # If one launch cannot address all samples, there are ``chunks`` launches. Each launch writes its own
        # partial sums, so there are at least ``chunks`` partial sums for each sum.
        for splits in sorted({max(each, chunks) for each in ({1, 2} if every else ways | {1})}):
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
                launches=1 + chunks + (splits > 1),
                gemm_share=tile.share * _share(values * pixels, turns),
            )
            loads = blocks * (tile.rows + tile.columns) * pixels
            share = tile.share * _share(values * pixels, turns + (_SUM_LAUNCH if splits > 1 else 0))
            found.append(_RankedOption(option, share, loads + through_workspace))
    return found


def _busy_blocks(tile: Tile) -> list[int]:
    """Return two numbers of blocks: enough to keep all compute units busy, and enough to hide latency."""
    filling = max(1, _FULL_THREADS // tile.threads)
    return [COMPUTE_UNITS * filling, COMPUTE_UNITS * max(filling, 2 * _FULL_THREADS // tile.threads)]


def _turns(blocks: int, threads: int) -> float:
    return max(1.0, -(-blocks // COMPUTE_UNITS) * threads / _FULL_THREADS)


def _share(useful: int, turns: float) -> float:
    """Return the share of the device's arithmetic throughput that a kernel uses, at most 1.

    The kernel computes ``useful`` products in the time ``turns``. In one turn, ``_FULL_THREADS`` threads of
    each compute unit add one product to each of their 64 sums.
    """
    return min(1.0, useful / max(1.0, turns * COMPUTE_UNITS * _FULL_THREADS * 64))
