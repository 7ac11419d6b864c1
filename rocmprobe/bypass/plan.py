"""Which algorithm computes a problem, in which pieces, and how much memory that takes. Pure.

Workspace is what the bypass allocates at its peak above input, weight, bias and results. A plan states an
upper bound on it in bytes, the sum of the parts that its algorithm may need. With n samples at a time,
t windows in a tile of each sample, C channels, K filters, w values in the weight, b bytes for an element
of the tensors and a bytes for an element of the GEMMs (a = 4 for fp16 and bf16, otherwise a = b):

=========  ==================================================================================
pointwise  0; bwd-weights w * a when the gradient is not contiguous
im2col     fwd: columns n * C * taps * t * a, padded window n * C * span(t) * b, weight w * a,
           bias max(C, K) * a, product n * K * t * a unless the GEMM writes into the output;
           bwd-weights: the same, with the gradient in the place of the product; bwd-data at
           stride 1: as fwd with the sides swapped and the weight twice
col2im     columns n * C * taps * t * a, weight w * a, bias max(C, K) * a, gradient n * K * t * a,
           and for fp16 and bf16 the image in fp32, n * C * image * a
=========  ==================================================================================

The columns are those of Chellapilla, Puri and Simard, "High performance convolutional neural networks
for document processing", 2006.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Callable

from rocmprobe.bypass.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry, geometry

ELEMENT_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
DEFAULT_WORKSPACE_MB = 256
MEGABYTE = 1 << 20
_CPU_WINDOWS = 2048

Needed = Callable[[int, Sequence[int]], int]


@dataclass(frozen=True)
class Plan:
    """How one direction of a problem is computed.

    Attributes:
        algorithm: ``pointwise``, ``im2col`` or ``col2im``.
        flipped: bwd-data as a convolution over the gradient with the taps reversed (stride 1).
        samples: samples in one chunk.
        tile: windows in one tile, for each spatial dimension.
        workspace_bytes: upper bound on what is allocated above operands and results.
    """

    algorithm: str
    flipped: bool
    samples: int
    tile: tuple[int, ...]
    workspace_bytes: int


@dataclass(frozen=True)
class Operands:
    """What a plan needs to know of the tensors besides their sizes; see :func:`plan`."""

    dtype: str
    device_type: str
    channels_last: bool
    dense: bool


def plan(
    direction: str,
    input_shape: Sequence[int],
    weight_shape: Sequence[int],
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool = False,
    output_padding: Sequence[int] | None = None,
    groups: int = 1,
    dtype: str = "float32",
    device_type: str = "cpu",
    channels_last: bool = False,
    dense: bool = True,
    workspace_mb: float = DEFAULT_WORKSPACE_MB,
) -> Plan:
    """The plan for one ``direction`` ("fwd", "bwd-data", "bwd-weights") of a problem, as PyTorch names it.

    Args:
        input_shape: ``(N, C, *spatial)``; also in the backward directions.
        weight_shape: in PyTorch's layout; a transposed problem has ``(C, K / groups, *kernel)``.
        stride, padding, dilation, output_padding: one entry for each spatial dimension.
        dtype: "float16", "bfloat16", "float32" or "float64".
        channels_last: whether PyTorch gives the results in a channels-last layout.
        dense: False when an operand is not contiguous, nor channels-last (a slice, an expanded tensor).
        workspace_mb: the cap on the workspace, in MiB. It is kept unless a single window, or for col2im in
            fp16 and bf16 a single sample's image, needs more; the weight's copy counts against it too.

    Raises:
        ValueError: when PyTorch would refuse the problem, or when there is nothing to compute.
    """
    plain = geometry(
        input_shape,
        weight_shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        transposed=transposed,
        output_padding=output_padding,
        groups=groups,
    )
    operands = Operands(dtype, device_type, channels_last, dense)
    return choose(plain_direction(direction, transposed), plain, operands, int(workspace_mb * MEGABYTE))


def plain_direction(direction: str, transposed: bool) -> str:
    """The direction of the plain convolution that computes ``direction`` of a problem."""
    if direction not in (FWD, BWD_DATA, BWD_WEIGHTS):
        raise ValueError(f"no such direction: {direction!r}")
    return {FWD: BWD_DATA, BWD_DATA: FWD}.get(direction, direction) if transposed else direction


def choose(direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan:
    """As :func:`plan`, for a direction of a plain convolution and a cap in bytes."""
    size = ELEMENT_BYTES[operands.dtype]
    wide = max(size, 4)
    weight = plain.filters * plain.depth
    if plain.is_pointwise() and operands.dense and wide == size:
        copy = weight * wide if direction == BWD_WEIGHTS and operands.channels_last else 0
        return Plan("pointwise", False, plain.batch, plain.feature, copy)
    most = plain.batch
    if operands.device_type == "cpu":
        # Few samples keep the columns in the caches; many make a GEMM of few windows efficient.
        most = min(plain.batch, max(1, _CPU_WINDOWS // prod(plain.feature)))
    if direction != BWD_DATA:
        needed = _im2col_bytes(plain, size, weight, direction == FWD)
        return _fitted("im2col", plain.feature, most, needed, cap)
    # Turning a large weight over costs more than adding the columns of a small image back.
    if set(plain.stride) == {1} and weight <= plain.batch * plain.filters * prod(plain.feature):
        flipped = plain.flipped()
        needed = _im2col_bytes(flipped, size, 2 * weight, True)
        return replace(_fitted("im2col", flipped.feature, most, needed, cap), flipped=True)
    return _fitted("col2im", plain.feature, most, _col2im_bytes(plain, size, weight), cap)


def _im2col_bytes(plain: Geometry, size: int, weight: int, forward: bool) -> Needed:
    wide = max(size, 4)
    padded = plain.reaches_outside()

    def needed(samples: int, tile: Sequence[int]) -> int:
        columns = samples * plain.channels * plain.taps * prod(tile)
        window = samples * plain.channels * prod(plain.span(tile)) if padded else 0
        in_place = forward and samples == 1 and wide == size and tuple(tile[1:]) == plain.feature[1:]
        product = 0 if in_place else samples * plain.filters * prod(tile)
        vector = max(plain.filters, plain.channels)
        return (columns + weight + product + vector) * wide + window * size

    return needed


def _col2im_bytes(plain: Geometry, size: int, weight: int) -> Needed:
    wide = max(size, 4)

    def needed(samples: int, tile: Sequence[int]) -> int:
        columns = samples * plain.channels * plain.taps * prod(tile)
        gradient = samples * plain.filters * prod(tile)
        image = samples * plain.channels * prod(plain.image) if wide != size else 0
        vector = max(plain.filters, plain.channels)
        return (columns + weight + gradient + image + vector) * wide

    return needed


def _fitted(algorithm: str, windows: tuple[int, ...], most: int, needed: Needed, cap: int) -> Plan:
    """The most samples with all of their windows, or one sample in the largest tiles, under the cap."""
    samples = _largest(most, lambda count: needed(count, windows) <= cap)
    tile = list(windows)
    for dimension, size in enumerate(windows):
        if needed(samples, tile) <= cap:
            break

        def fits(count: int, dimension: int = dimension) -> bool:
            return needed(samples, [*tile[:dimension], count, *tile[dimension + 1 :]]) <= cap

        tile[dimension] = _largest(size, fits)
    return Plan(algorithm, False, samples, tuple(tile), needed(samples, tile))


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest count up to ``most`` that fits, and at least 1; what fits for a count fits for less."""
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
