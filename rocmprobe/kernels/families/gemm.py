"""Family of kernels that compute convolution as a matrix product.

The name of a variant has the tile and the number of partial sums per sum, e.g. ``64x64x8/16``.
"""

from __future__ import annotations

from typing import Optional

from rocmprobe.geometry import BWD_WEIGHTS, Geometry
from rocmprobe.kernels.families import gather_gemm, reduction, weights_gemm
from rocmprobe.kernels.families.extents import ITEM_BYTES, Strides, is_dense_addressable
from rocmprobe.kernels.families.family import Option
from rocmprobe.kernels.launches import Launch

SOURCES = (gather_gemm.SOURCE, weights_gemm.SOURCE, *reduction.SOURCES)
STRUCTURES = (*gather_gemm.STRUCTURES, *weights_gemm.STRUCTURES, *reduction.STRUCTURES)


def options(
    direction: str, plain: Geometry, dtype: str, cap: int, compute_units: int, every: bool = False
) -> list[Option]:
    """Return the kernel for a convolution, or no kernel if it needs more than ``cap`` bytes of workspace.

    If ``every`` is True, return up to two kernels for every tile that can compute the convolution.
    """
    if dtype not in ITEM_BYTES or len(plain.kernel) > 3 or not is_dense_addressable(plain):
        return []
    if direction == BWD_WEIGHTS:
        return weights_gemm.options(plain, cap, compute_units, every)
    return gather_gemm.options(direction, plain, dtype, cap, compute_units, every)


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

    Return None if the kernel does not support the convolution, if a tensor spans more than 2^31 bytes, or if
    bwd-weights needs more than ``cap`` bytes of workspace.
    """
    strides = {"image": image, "weight": weight, "feature": feature}
    name, _, parts = variant.partition("/")
    if direction == BWD_WEIGHTS:
        tile = next(tile for tile in weights_gemm.WEIGHTS_TILES if tile.name == name)
        return weights_gemm.prepare(plain, dtype, tile, int(parts), **strides, cap=cap)
    through = next(tile for tile in gather_gemm.TILES if tile.name == name)
    return gather_gemm.prepare(direction, plain, dtype, through, int(parts), **strides, has_bias=has_bias)
