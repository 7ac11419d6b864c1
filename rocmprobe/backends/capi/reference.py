"""A CPU reference in plain Python: exact on integers, slow, for problems of up to some million products.

Tensors are flat lists in PyTorch's own layout (N, C, ...). What a float holds exactly is compared exactly.
"""

from __future__ import annotations

import math
import random
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from rocmprobe.numerics import Errors, ExactFill
from rocmprobe.problems import Problem

_ARRAY_CODES = {"float32": "f", "float64": "d"}


def integers(count: int, largest: int, density: float = 1.0, seed: int = 0) -> list[int]:
    """``count`` integers in [-largest, largest], the share ``density`` of them not zero; by a fixed seed."""
    chosen = random.Random(seed)  # noqa: S311
    values = [value for value in range(-largest, largest + 1) if value]
    return [chosen.choice(values) if chosen.random() < density else 0 for _ in range(count)]


def operands(problem: Problem, direction: str, fill: ExactFill, seed: int = 0) -> dict[str, list[int]]:
    """The two inputs of a direction, whose sums stay representable under ``fill`` (``exact_fill``)."""
    shapes = {"x": problem.input_shape, "w": problem.weight_shape, "y": problem.output_shape}
    names = {"fwd": "xw", "bwd-data": "yw", "bwd-weights": "yx"}[direction]
    return {
        names[0]: integers(prod(shapes[names[0]]), fill.input_max, fill.density, seed),
        names[1]: integers(prod(shapes[names[1]]), fill.weight_max, 1.0, seed + 1),
    }


def convolve(problem: Problem, direction: str, operands: Mapping[str, Sequence[float]]) -> list[float]:
    """The result of one direction: y of x and w, x of y and w, or w of y and x; without bias.

    Raises ValueError for a transposed problem.
    """
    if problem.transposed:
        raise ValueError(f"{problem.text}: the reference has no transposed convolution")
    sums: list[float]
    if direction == "fwd":
        sums = [0] * prod(problem.output_shape)
        x, w = operands["x"], operands["w"]
        for at_x, at_w, at_y in _products(problem):
            sums[at_y] += x[at_x] * w[at_w]
    elif direction == "bwd-data":
        sums = [0] * prod(problem.input_shape)
        y, w = operands["y"], operands["w"]
        for at_x, at_w, at_y in _products(problem):
            sums[at_x] += y[at_y] * w[at_w]
    else:
        sums = [0] * prod(problem.weight_shape)
        y, x = operands["y"], operands["x"]
        for at_x, at_w, at_y in _products(problem):
            sums[at_w] += y[at_y] * x[at_x]
    return sums


def _products(problem: Problem) -> Iterator[tuple[int, int, int]]:
    """Every product of the convolution, as the places of its factors and of its sum in flat x, w and y."""
    taps = []
    for output in product(*map(range, problem.output_size)):
        for tap, offset in enumerate(product(*map(range, problem.kernel))):
            place = [
                o * s - p + k * d
                for o, s, p, k, d in zip(output, problem.stride, problem.padding, offset, problem.dilation)
            ]
            if all(0 <= at < size for at, size in zip(place, problem.input_size)):
                taps.append((_flat(place, problem.input_size), tap, _flat(output, problem.output_size)))
    inputs, weights, outputs = map(prod, (problem.input_size, problem.kernel, problem.output_size))
    in_group = problem.in_channels // problem.groups
    out_group = problem.out_channels // problem.groups
    for n, k, c in product(range(problem.batch), range(problem.out_channels), range(in_group)):
        at_x = (n * problem.in_channels + k // out_group * in_group + c) * inputs
        at_w = (k * in_group + c) * weights
        at_y = (n * problem.out_channels + k) * outputs
        for position, tap, output_position in taps:
            yield at_x + position, at_w + tap, at_y + output_position


def _flat(place: Sequence[int], sizes: Sequence[int]) -> int:
    flat = 0
    for at, size in zip(place, sizes):
        flat = flat * size + at
    return flat


def matrix_product(m: int, n: int, k: int, a: Sequence[float], b: Sequence[float]) -> list[float]:
    """a (m, k) times b (k, n), row-major."""
    return [
        sum(a[row * k + inner] * b[inner * n + column] for inner in range(k))
        for row in range(m)
        for column in range(n)
    ]


def batch_norm(
    shape: Sequence[int],
    x: Sequence[float],
    scale: Sequence[float],
    bias: Sequence[float],
    epsilon: float = 1e-5,
) -> list[float]:
    """Training batch norm of x (N, C, ...): each channel by its own mean and biased variance."""
    batch, channels, positions = shape[0], shape[1], prod(shape[2:])
    result = [0.0] * len(x)
    for channel in range(channels):
        places = [
            (image * channels + channel) * positions + position
            for image in range(batch)
            for position in range(positions)
        ]
        mean = math.fsum(x[at] for at in places) / len(places)
        variance = math.fsum((x[at] - mean) ** 2 for at in places) / len(places)
        factor = scale[channel] / math.sqrt(variance + epsilon)
        for at in places:
            result[at] = (x[at] - mean) * factor + bias[channel]
    return result


def errors(result: Sequence[float], reference: Sequence[float]) -> Errors:
    """Errors of ``result`` against a finite ``reference`` of the same length."""
    pairs = [(value, right) for value, right in zip(result, reference) if math.isfinite(value)]
    differences = [abs(value - right) for value, right in pairs]
    return Errors(
        count=len(reference),
        squared_error=math.fsum(difference * difference for difference in differences),
        max_error=max(differences, default=0.0),
        max_result=max((abs(value) for value, _ in pairs), default=0.0),
        max_reference=max(map(abs, reference), default=0.0),
        non_finite=len(reference) - len(pairs),
    )


def channels_last(values: Sequence[float], shape: Sequence[int]) -> list[float]:
    """(N, C, ...) as it lies in memory channels-last."""
    batch, channels, positions = shape[0], shape[1], prod(shape[2:])
    return [
        values[(image * channels + channel) * positions + position]
        for image, position, channel in product(range(batch), range(positions), range(channels))
    ]


def channels_first(values: Sequence[float], shape: Sequence[int]) -> list[float]:
    """The way back from ``channels_last``."""
    batch, channels, positions = shape[0], shape[1], prod(shape[2:])
    return [
        values[(image * positions + position) * channels + channel]
        for image, channel, position in product(range(batch), range(channels), range(positions))
    ]


def encode(values: Sequence[float], dtype: str) -> bytes:
    """Values as the device holds them; bfloat16 by cutting, which is exact for small integers."""
    if dtype == "float16":
        return struct.pack(f"{len(values)}e", *values)
    if dtype == "bfloat16":
        return array("H", (word >> 16 for word in array("I", encode(values, "float32")))).tobytes()
    return array(_ARRAY_CODES[dtype], values).tobytes()


def decode(content: bytes, dtype: str) -> list[float]:
    """The way back from ``encode``; NaN and infinities stay what they are."""
    if dtype == "float16":
        return list(struct.unpack(f"{len(content) // 2}e", content))
    if dtype == "bfloat16":
        words = array("I", (half << 16 for half in array("H", content)))
        return decode(words.tobytes(), "float32")
    return [float(value) for value in array(_ARRAY_CODES[dtype], content)]
