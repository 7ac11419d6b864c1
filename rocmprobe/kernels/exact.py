"""Convolution in plain Python, as the reference where PyTorch is not available."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from operator import mul
from typing import Optional
from zlib import crc32

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry

_CODES = {"float16": "e", "float32": "f", "float64": "d"}


def shapes(plain: Geometry) -> dict[str, tuple[int, ...]]:
    """Return the shapes of image (input), weight and feature (output)."""
    return {
        "image": (plain.batch, plain.channels, *plain.image),
        "weight": (plain.filters, plain.channels // plain.groups, *plain.kernel),
        "feature": (plain.batch, plain.filters, *plain.feature),
    }


def integers(seed: int, count: int) -> list[int]:
    """Return ``count`` pseudorandom integers from -2 to 2."""
    # Sums of small integers are exact in float32.
    return [crc32(f"{seed} {number}".encode()) % 5 - 2 for number in range(count)]


def convolved(
    direction: str,
    plain: Geometry,
    image: Sequence[float],
    weight: Sequence[float],
    feature: Sequence[float],
    bias: Optional[Sequence[float]] = None,
) -> list[float]:
    """Return the tensor that ``direction`` computes, e.g. the output ``feature`` for "fwd".

    All tensors are flat, in contiguous order. The argument for the computed tensor is ignored. ``bias`` has
    one value for each channel of the computed tensor.
    """
    compute = {FWD: _forward, BWD_DATA: _backward_data, BWD_WEIGHTS: _backward_weights}[direction]
    result = compute(plain, image, weight, feature)
    if bias is not None:
        inner = len(result) // (plain.batch * len(bias))
        added = (value for _ in range(plain.batch) for value in bias for _ in range(inner))
        result = [value + each for value, each in zip(result, added)]
    return result


def _forward(
    plain: Geometry, image: Sequence[float], weight: Sequence[float], feature: Sequence[float]
) -> list[float]:
    result: list[float] = []
    gather = _gather(plain)
    for n, (channels, filters) in product(range(plain.batch), _groups(plain)):
        columns = list(zip(*_rows(plain, image, channels, [n], gather)))
        for k in filters:
            factors = _part(weight, plain.depth, k)
            result += [sum(map(mul, column, factors)) for column in columns]
    return result


def _backward_data(
    plain: Geometry, image: Sequence[float], weight: Sequence[float], feature: Sequence[float]
) -> list[float]:
    pixels, windows = prod(plain.image), prod(plain.feature)
    result: list[float] = [0] * (plain.batch * plain.channels * pixels)
    gather = _gather(plain)
    for n, (channels, filters) in product(range(plain.batch), _groups(plain)):
        at_windows = list(zip(*(_part(feature, windows, n * plain.filters + k) for k in filters)))
        weights = zip(*(_part(weight, plain.depth, k) for k in filters))
        for (c, places), factors in zip(product(channels, gather), weights):
            at = (n * plain.channels + c) * pixels
            for place, gradients in zip(places, at_windows):
                if place >= 0:
                    result[at + place] += sum(map(mul, gradients, factors))
    return result


def _backward_weights(
    plain: Geometry, image: Sequence[float], weight: Sequence[float], feature: Sequence[float]
) -> list[float]:
    result: list[float] = []
    gather, windows = _gather(plain), prod(plain.feature)
    for channels, filters in _groups(plain):
        rows = _rows(plain, image, channels, range(plain.batch), gather)
        for k in filters:
            parts = (_part(feature, windows, n * plain.filters + k) for n in range(plain.batch))
            gradients = [value for part in parts for value in part]
            result += [sum(map(mul, row, gradients)) for row in rows]
    return result


def _groups(plain: Geometry) -> list[tuple[range, range]]:
    """Return (image channels, filters) of each group."""
    channels, filters = plain.channels // plain.groups, plain.filters // plain.groups
    return [
        (range(group * channels, (group + 1) * channels), range(group * filters, (group + 1) * filters))
        for group in range(plain.groups)
    ]


def _gather(plain: Geometry) -> list[list[int]]:
    """Return one list per tap. Its items are the flat image indices that the tap reads, one for each window.

    If the tap reads padding, the index is -1.
    """
    found = []
    for tap in product(*map(range, plain.kernel)):
        places = []
        for window in product(*map(range, plain.feature)):
            flat = 0
            for o, s, p, k, d, size in zip(
                window, plain.stride, plain.padding, tap, plain.dilation, plain.image
            ):
                at = o * s - p + k * d
                if not 0 <= at < size:
                    flat = -1
                    break
                flat = flat * size + at
            places.append(flat)
        found.append(places)
    return found


def _rows(
    plain: Geometry,
    image: Sequence[float],
    channels: Iterable[int],
    samples: Sequence[int],
    gather: Sequence[Sequence[int]],
) -> list[list[float]]:
    """Return the im2col matrix: one row for each channel and tap, one column for each window."""
    pixels = prod(plain.image)
    rows: list[list[float]] = []
    for c in channels:
        # The index -1 stands for padding, and reads the zero at the end.
        padded = [[*_part(image, pixels, n * plain.channels + c), 0] for n in samples]
        rows += ([each[at] for each in padded for at in places] for places in gather)
    return rows


def _part(values: Sequence[float], size: int, number: int) -> Sequence[float]:
    return values[number * size : (number + 1) * size]


def encode(values: Sequence[float], dtype: str) -> bytes:
    """Return the bytes of ``values`` in ``dtype``, rounded to nearest, ties to even."""
    if dtype != "bfloat16":
        return struct.pack(f"<{len(values)}{_CODES[dtype]}", *values)
    bits = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(values)}H", *((each + 0x7FFF + (each >> 16 & 1)) >> 16 for each in bits))


def reorder(content: bytes, item: int, shape: Sequence[int], strides: Sequence[int]) -> bytes:
    """Return the bytes of a contiguous tensor, rearranged to ``strides`` (in elements).

    The new strides must leave no gaps between elements.
    """
    target = bytearray(len(content))
    for number, index in enumerate(product(*map(range, shape))):
        place = sum(i * stride for i, stride in zip(index, strides)) * item
        target[place : place + item] = content[number * item : (number + 1) * item]
    return bytes(target)


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a dense channels-last tensor of shape ``(N, C, *spatial)``."""
    spatial = contiguous((*shape[2:], shape[1]))
    return (prod(shape[1:]), 1, *spatial[:-1])


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a contiguous tensor."""
    return tuple(prod(shape[place + 1 :]) for place in range(len(shape)))
