"""Convolution of small integers in plain Python: what the kernels are held against where there is no PyTorch.

The integers are small enough that every sum is exact in float32; what is stored in float16 and bfloat16 is
rounded to the nearest, as the kernels do.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import product
from math import prod
from zlib import crc32

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry


def shapes(plain: Geometry) -> dict[str, tuple[int, ...]]:
    """The shapes of image, weight and feature."""
    return {
        "image": (plain.batch, plain.channels, *plain.image),
        "weight": (plain.filters, plain.channels // plain.groups, *plain.kernel),
        "feature": (plain.batch, plain.filters, *plain.feature),
    }


def integers(seed: int, count: int) -> list[int]:
    """Integers from -2 to 2, equal for equal seeds."""
    return [crc32(f"{seed} {number}".encode()) % 5 - 2 for number in range(count)]


def convolved(
    direction: str,
    plain: Geometry,
    image: Sequence[int],
    weight: Sequence[int],
    feature: Sequence[int],
    bias: Sequence[int] | None = None,
) -> list[int]:
    """The result of a direction; its own operand is not looked at. All in the order of their dimensions, last
    one fastest. ``bias`` has one value for each channel of the result, feature or image."""
    inputs, outputs = plain.channels // plain.groups, plain.filters // plain.groups
    positions, windows, taps = prod(plain.image), prod(plain.feature), plain.taps
    sizes = {FWD: plain.filters, BWD_DATA: plain.channels}
    if direction == BWD_WEIGHTS:
        result = [0] * (plain.filters * inputs * taps)
    else:
        inner = windows if direction == FWD else positions
        channels = [0] * sizes[direction] if bias is None else list(bias)
        result = [value for _ in range(plain.batch) for value in channels for _ in range(inner)]
    meeting = _meeting(plain)
    for sample, filter_, channel in product(range(plain.batch), range(plain.filters), range(inputs)):
        x = (sample * plain.channels + filter_ // outputs * inputs + channel) * positions
        w = (filter_ * inputs + channel) * taps
        y = (sample * plain.filters + filter_) * windows
        for window, tap, position in meeting:
            if direction == FWD:
                result[y + window] += weight[w + tap] * image[x + position]
            elif direction == BWD_DATA:
                result[x + position] += weight[w + tap] * feature[y + window]
            else:
                result[w + tap] += feature[y + window] * image[x + position]
    return result


def _meeting(plain: Geometry) -> list[tuple[int, int, int]]:
    """(window, tap, image position) wherever a tap of a window lies inside of the image, as flat indices."""
    found = [(0, 0, 0)]
    sizes = zip(plain.feature, plain.kernel, plain.image, plain.stride, plain.padding, plain.dilation)
    for windows, taps, positions, stride, padding, dilation in sizes:
        here = [
            (window, tap, window * stride - padding + tap * dilation)
            for window in range(windows)
            for tap in range(taps)
            if 0 <= window * stride - padding + tap * dilation < positions
        ]
        found = [
            (w * windows + window, t * taps + tap, p * positions + position)
            for w, t, p in found
            for window, tap, position in here
        ]
    return found


def encoded(values: Sequence[int], dtype: str) -> bytes:
    """The values as a tensor of ``dtype``, rounded to the nearest, of two equally near to the even one."""
    if dtype == "float32":
        return struct.pack(f"<{len(values)}f", *values)
    if dtype == "float16":
        return struct.pack(f"<{len(values)}e", *values)
    bits = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(values)}H", *((each + 0x7FFF + (each >> 16 & 1)) >> 16 for each in bits))


def reordered(content: bytes, item: int, shape: Sequence[int], strides: Sequence[int]) -> bytes:
    """A tensor in the order of its dimensions as one with other ``strides`` (elements) and no gaps."""
    target = bytearray(len(content))
    for number, index in enumerate(product(*map(range, shape))):
        place = sum(i * stride for i, stride in zip(index, strides)) * item
        target[place : place + item] = content[number * item : (number + 1) * item]
    return bytes(target)


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of a dense tensor ``(N, C, *spatial)`` whose channels are neighbours."""
    spatial = contiguous((*shape[2:], shape[1]))
    return (prod(shape[1:]), 1, *spatial[:-1])


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of a dense tensor in the order of its dimensions."""
    return tuple(prod(shape[place + 1 :]) for place in range(len(shape)))
