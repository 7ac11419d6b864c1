"""Reference implementations in plain Python: exact on integers, but slow.

Tensors are flat lists in PyTorch's default layout (N, C, ...).
"""

from __future__ import annotations

import math
import random
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from operator import mul

from rocmprobe.geometry import geometry
from rocmprobe.kernels.exact import convolved
from rocmprobe.model.numerics import Errors, ExactFill, relative_error
from rocmprobe.model.problems import Problem

_ARRAY_CODES = {"float32": "f", "float64": "d"}


def integers(count: int, largest: int, density: float = 1.0, seed: int = 0) -> list[int]:
    """Return ``count`` random integers in [-largest, largest], nonzero with the probability ``density``."""
    chosen = random.Random(seed)  # noqa: S311
    values = [value for value in range(-largest, largest + 1) if value]
    return [chosen.choice(values) if chosen.random() < density else 0 for _ in range(count)]


def operands(problem: Problem, direction: str, fill: ExactFill, seed: int = 0) -> dict[str, list[int]]:
    """Return random inputs of a direction, keyed by "x", "w" or "y"."""
    shapes = {"x": problem.input_shape, "w": problem.weight_shape, "y": problem.output_shape}
    names = {"fwd": "xw", "bwd-data": "yw", "bwd-weights": "yx"}[direction]
    return {
        names[0]: integers(prod(shapes[names[0]]), fill.largest, fill.density, seed),
        names[1]: integers(prod(shapes[names[1]]), fill.largest, 1.0, seed + 1),
    }


def plain(problem: Problem, direction: str) -> tuple[Problem, str]:
    """Return (problem, direction) that PyTorch passes to MIOpen.

    PyTorch replaces a transposed convolution by a convolution with input and output exchanged.
    """
    if not problem.transposed:
        return problem, direction
    turned = replace(
        problem,
        kind=problem.kind.replace("_transpose", ""),
        in_channels=problem.out_channels,
        input_size=problem.output_size,
        out_channels=problem.in_channels,
        output_padding=tuple(0 for _ in problem.output_padding),
    )
    return turned, {"fwd": "bwd-data", "bwd-data": "fwd"}.get(direction, direction)


def convolve(problem: Problem, direction: str, operands: Mapping[str, Sequence[float]]) -> list[float]:
    """Return the result of one direction without bias.

    Raise ValueError if the problem is transposed.
    """
    if problem.transposed:
        raise ValueError(f"{problem.text}: the reference has no transposed convolution")
    plain = geometry(
        problem.input_shape, problem.weight_shape, stride=problem.stride, padding=problem.padding,
        dilation=problem.dilation, groups=problem.groups,
    )  # fmt: skip
    return convolved(direction, plain, *(operands.get(name, ()) for name in "xwy"))


def matrix_product(m: int, n: int, k: int, a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Return the product of a (m, k) and b (k, n), all row-major."""
    return [
        sum(a[row * k + inner] * b[inner * n + column] for inner in range(k))
        for row in range(m)
        for column in range(n)
    ]


def moments(shape: Sequence[int], x: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the mean and the biased variance of each channel."""
    means, variances = [], []
    for places in _channels(shape):
        mean = math.fsum(x[at] for at in places) / len(places)
        means.append(mean)
        variances.append(math.fsum((x[at] - mean) ** 2 for at in places) / len(places))
    return means, variances


def batch_norm(
    shape: Sequence[int],
    x: Sequence[float],
    scale: Sequence[float],
    bias: Sequence[float],
    mean: Sequence[float],
    variance: Sequence[float],
    epsilon: float = 1e-5,
) -> list[float]:
    """Return the batch norm of x (N, C, ...) with the given mean and variance."""
    result = [0.0] * len(x)
    for channel, places in enumerate(_channels(shape)):
        factor = scale[channel] / math.sqrt(variance[channel] + epsilon)
        for at in places:
            result[at] = (x[at] - mean[channel]) * factor + bias[channel]
    return result


def batch_norm_backward(
    shape: Sequence[int],
    x: Sequence[float],
    dy: Sequence[float],
    scale: Sequence[float],
    mean: Sequence[float],
    variance: Sequence[float],
    epsilon: float = 1e-5,
) -> dict[str, list[float]]:
    """Return the gradients ``input gradient``, ``weight gradient`` and ``bias gradient`` of batch norm in
    training (Ioffe and Szegedy, 2015)."""
    dx, dscale, dbias = [0.0] * len(x), [], []
    for channel, places in enumerate(_channels(shape)):
        inverse = 1 / math.sqrt(variance[channel] + epsilon)
        normed = [(x[at] - mean[channel]) * inverse for at in places]
        dbias.append(math.fsum(dy[at] for at in places))
        dscale.append(math.fsum(dy[at] * value for at, value in zip(places, normed)))
        for at, value in zip(places, normed):
            centred = dy[at] - (dbias[-1] + value * dscale[-1]) / len(places)
            dx[at] = scale[channel] * inverse * centred
    return {"input gradient": dx, "weight gradient": dscale, "bias gradient": dbias}


def channel_sums(shape: Sequence[int], values: Sequence[float]) -> list[float]:
    """Return the sum of each channel."""
    return [math.fsum(values[at] for at in places) for places in _channels(shape)]


def _channels(shape: Sequence[int]) -> Iterator[list[int]]:
    batch, channels, positions = shape[0], shape[1], prod(shape[2:])
    for channel in range(channels):
        yield [
            (image * channels + channel) * positions + position
            for image in range(batch)
            for position in range(positions)
        ]


def errors(result: Sequence[float], reference: Sequence[float]) -> Errors:
    """Return the errors of ``result`` against a finite ``reference`` of the same length."""
    pairs = [(value, right) for value, right in zip(result, reference) if math.isfinite(value)]
    differences = [abs(value - right) for value, right in pairs]
    largest = max((abs(value) for value, _ in pairs), default=0.0)
    top = max(map(abs, reference), default=0.0)
    squares = math.fsum(difference * difference for difference in differences)
    return Errors(
        count=len(reference),
        rms_range=relative_error(math.sqrt(squares / max(1, len(reference))), max(largest, top)),
        max_ratio=relative_error(max(differences, default=0.0), top),
        max_result=largest,
        max_reference=top,
        non_finite=len(reference) - len(pairs),
        constant=len({value for value, _ in pairs}) == 1 and len(set(reference)) > 1,
    )


def scattered(
    values: Sequence[float], shape: Sequence[int], strides: Sequence[int], filler: float
) -> list[float]:
    """Return the memory of a tensor with ``strides`` (in elements) and ``filler`` in the gaps."""
    memory = [filler] * (1 + sum((size - 1) * stride for size, stride in zip(shape, strides)))
    for value, index in zip(values, product(*map(range, shape))):
        memory[sum(map(mul, index, strides))] = value
    return memory


def broadcast(values: Sequence[float], shape: Sequence[int], to: Sequence[int]) -> list[float]:
    """Broadcast a tensor from ``shape`` to the shape ``to``."""
    strides = [0 if size == 1 else prod(shape[axis + 1 :]) for axis, size in enumerate(shape)]
    return [values[sum(map(mul, index, strides))] for index in product(*map(range, to))]


def channels_last(values: Sequence[float], shape: Sequence[int]) -> list[float]:
    """Convert a tensor of ``shape`` (N, C, ...) to channels-last order."""
    batch, channels, positions = shape[0], shape[1], prod(shape[2:])
    return [
        values[(image * channels + channel) * positions + position]
        for image, position, channel in product(range(batch), range(positions), range(channels))
    ]


def channels_first(values: Sequence[float], shape: Sequence[int]) -> list[float]:
    """Convert a tensor of ``shape`` (N, C, ...) from channels-last order."""
    batch, channels, positions = shape[0], shape[1], prod(shape[2:])
    return [
        values[(image * positions + position) * channels + channel]
        for image, channel, position in product(range(batch), range(channels), range(positions))
    ]


def decode(content: bytes, dtype: str) -> list[float]:
    """Decode the bytes of a tensor of ``dtype``."""
    if dtype == "float16":
        return list(struct.unpack(f"{len(content) // 2}e", content))
    if dtype == "bfloat16":
        words = array("I", (half << 16 for half in array("H", content)))
        return decode(words.tobytes(), "float32")
    return [float(value) for value in array(_ARRAY_CODES[dtype], content)]
