"""Convolution in plain Python, as the reference where PyTorch is not available."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import product
from math import prod
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
    channels, filters = plain.channels // plain.groups, plain.filters // plain.groups
    pixels, windows = prod(plain.image), prod(plain.feature)
    names = {FWD: "feature", BWD_DATA: "image", BWD_WEIGHTS: "weight"}
    result: list[float] = [0] * prod(shapes(plain)[names[direction]])
    taps = _taps(plain)
    for n, k, c in product(range(plain.batch), range(plain.filters), range(channels)):
        f = (n * plain.filters + k) * windows
        i = (n * plain.channels + k // filters * channels + c) * pixels
        for w, pairs in enumerate(taps, (k * channels + c) * len(taps)):
            if direction == BWD_WEIGHTS:
                result[w] += sum([feature[f + o] * image[i + p] for o, p in pairs])
                continue
            factor = weight[w]
            for o, p in pairs:
                if direction == FWD:
                    result[f + o] += factor * image[i + p]
                else:
                    result[i + p] += factor * feature[f + o]
    if bias is not None:
        inner = len(result) // (plain.batch * len(bias))
        added = (value for _ in range(plain.batch) for value in bias for _ in range(inner))
        result = [value + each for value, each in zip(result, added)]
    return result


def _taps(plain: Geometry) -> list[list[tuple[int, int]]]:
    """Return one list per tap, with (window, pixel) for each window at which the tap reads a pixel.

    Windows and pixels are flat indices of one channel.
    """
    found = []
    for tap in product(*map(range, plain.kernel)):
        pairs = []
        for number, window in enumerate(product(*map(range, plain.feature))):
            flat = 0
            for o, s, p, k, d, size in zip(
                window, plain.stride, plain.padding, tap, plain.dilation, plain.image
            ):
                at = o * s - p + k * d
                if not 0 <= at < size:
                    break
                flat = flat * size + at
            else:
                pairs.append((number, flat))
        found.append(pairs)
    return found


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
