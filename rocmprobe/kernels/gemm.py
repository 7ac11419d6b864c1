"""Convolution as a product of matrices by kernels of our own: which variants a problem has, the most
promising first, what each takes, and its launches. Strides are in elements and have all dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Optional

from rocmprobe.kernels import gather_gemm
from rocmprobe.kernels.extents import ITEM_BYTES, Strides
from rocmprobe.kernels.gather_gemm import TILES, Tile
from rocmprobe.kernels.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry
from rocmprobe.kernels.launches import Launch

SOURCES = (gather_gemm.SOURCE,)
STRUCTURES = gather_gemm.STRUCTURES

#: Variants that are offered for a problem.
_OFFERED = 4
#: Compute units of an RX 5700, where a caller does not know those of its device.
COMPUTE_UNITS = 36
#: Threads that keep a compute unit busy: with fewer, part of its lanes has nothing to do.
_BUSY_THREADS = 128


@dataclass(frozen=True)
class Figures:
    """What a call takes: bytes of workspace, floating-point operations, bytes moved (operands and results
    once, the workspace written and read), and launches."""

    workspace_bytes: int
    flops: int
    moved_bytes: int
    launches: int


def variants(
    direction: str,
    plain: Geometry,
    image_strides: Sequence[int],
    weight_strides: Sequence[int],
    feature_strides: Sequence[int],
    dtype: str,
    *,
    cap: Optional[int] = None,
    compute_units: int = COMPUTE_UNITS,
) -> tuple[str, ...]:
    """At most four variants, the one expected to be fastest first; none where the kernels do not apply: one
    sample reaches over 2^31 bytes, or the workspace would be above ``cap`` bytes."""
    found = []
    for tile in TILES:
        figured = figures(
            direction, plain, image_strides, weight_strides, feature_strides, dtype, tile.kernel, cap=cap
        )
        if figured is not None:
            found.append((_cost(direction, plain, tile, compute_units), tile.kernel))
    return tuple(name for _, name in sorted(found)[:_OFFERED])


def figures(
    direction: str,
    plain: Geometry,
    image_strides: Sequence[int],
    weight_strides: Sequence[int],
    feature_strides: Sequence[int],
    dtype: str,
    variant: str,
    *,
    cap: Optional[int] = None,
) -> Optional[Figures]:
    """What :func:`prepare` would take; None where it prepares nothing."""
    launches = prepare(
        direction, plain, image_strides, weight_strides, feature_strides, dtype, variant, cap=cap
    )
    if launches is None:
        return None
    tile = _named(variant)
    workspace = sum(
        sum(gather_gemm.packed_bytes(tile, each)) for each in gather_gemm.products(direction, plain)
    )
    values = plain.batch * (plain.channels * prod(plain.image) + plain.filters * prod(plain.feature))
    return Figures(
        workspace_bytes=workspace,
        flops=2 * plain.batch * plain.filters * plain.depth * prod(plain.feature),
        moved_bytes=(values + plain.filters * plain.depth) * ITEM_BYTES[dtype] + 2 * workspace,
        launches=len(launches),
    )


def prepare(
    direction: str,
    plain: Geometry,
    image_strides: Sequence[int],
    weight_strides: Sequence[int],
    feature_strides: Sequence[int],
    dtype: str,
    variant: str,
    *,
    cap: Optional[int] = None,
) -> Optional[tuple[Launch, ...]]:
    """The launches of one call, or None where the variant does not apply; see :func:`variants`. The bias
    has one value, next to each other, for each channel of the result; its address may be 0."""
    if dtype not in ITEM_BYTES or len(plain.kernel) > 3 or direction not in (FWD, BWD_DATA, BWD_WEIGHTS):
        return None
    image, weight, feature = map(Strides.of, (image_strides, weight_strides, feature_strides))
    tile = _named(variant)
    if direction == BWD_WEIGHTS:
        return None
    products = gather_gemm.products(direction, plain)
    if cap is not None and sum(sum(gather_gemm.packed_bytes(tile, each)) for each in products) > cap:
        return None
    return gather_gemm.prepare(direction, plain, dtype, tile, image=image, weight=weight, feature=feature)


def _named(variant: str) -> Tile:
    return next(tile for tile in TILES if tile.kernel == variant)


def _cost(direction: str, plain: Geometry, tile: Tile, compute_units: int) -> float:
    """Time in an arbitrary unit: turns in which the device computes all blocks, times their length."""
    total = 0.0
    for product in gather_gemm.products(direction, plain):
        columns = -(-plain.batch * product.positions // tile.columns)
        blocks = columns * -(-product.rows // tile.rows) * product.groups
        turns = -(-blocks * tile.threads // (compute_units * _BUSY_THREADS))
        total += turns * (product.depth + tile.depth)
    return total
