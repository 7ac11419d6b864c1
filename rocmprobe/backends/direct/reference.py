"""Reference implementations in plain Python: exact on integers, but slow.

Tensors are flat lists in PyTorch's default layout (N, C, ...).
"""

from __future__ import annotations

import math
import random
import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

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


def operands(problem: Problem, direction: str, fill: ExactFill) -> dict[str, list[int]]:
    """Return random inputs of a direction, keyed by "x", "w" or "y"."""
    shapes = {"x": problem.input_shape, "w": problem.weight_shape, "y": problem.output_shape}
    names = {"fwd": "xw", "bwd-data": "yw", "bwd-weights": "yx"}[direction]
    return {
        names[0]: integers(prod(shapes[names[0]]), fill.largest, fill.density, seed=0),
        names[1]: integers(prod(shapes[names[1]]), fill.largest, 1.0, seed=1),
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
        problem.input_shape,
        problem.weight_shape,
        stride=problem.stride,
        padding=problem.padding,
        dilation=problem.dilation,
        groups=problem.groups,
    )
    return convolved(direction, plain, *(operands.get(name, ()) for name in "xwy"))


def matrix_product(m: int, n: int, k: int, a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Return the product of a (m, k) and b (k, n), all row-major."""
    return [
        sum(a[row * k + inner] * b[inner * n + column] for inner in range(k))
        for row in range(m)
        for column in range(n)
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


def decode(content: bytes, dtype: str) -> list[float]:
    """Decode the bytes of a tensor of ``dtype``."""
    if dtype == "float16":
        return list(struct.unpack(f"{len(content) // 2}e", content))
    if dtype == "bfloat16":
        words = array("I", (half << 16 for half in array("H", content)))
        return decode(words.tobytes(), "float32")
    return [float(value) for value in array(_ARRAY_CODES[dtype], content)]
