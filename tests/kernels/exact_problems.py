"""Convolution problems on the CPU: drawn sizes, tensors of any strides amid canaries, and exact integers."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Optional

import on_cpu
from hypothesis import strategies as st

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry
from rocmprobe.kernels import exact
from rocmprobe.kernels.families.extents import ITEM_BYTES, Strides
from rocmprobe.kernels.families.family import Family
from rocmprobe.kernels.launches import Launch

#: Bytes that are a NaN in every dtype, where nothing may be read, and bytes where nothing may be written.
_POISON, _CANARY = b"\xff", b"\xaa"
_MARGIN = 64
LAYOUTS = ("first", "last", "any")


@st.composite
def geometries(draw: st.DrawFn, most_in_group: int) -> Geometry:
    """Problems of one to three spatial dimensions that are quickly computed in plain Python."""
    spatial = draw(st.integers(1, 3))
    group = st.one_of(st.just(1), st.integers(1, most_in_group))
    inputs, outputs = draw(group), draw(group)
    groups = draw(st.integers(1, max(1, 24 // (inputs * outputs))))
    most = (150, 40, 9)[spatial - 1] if groups * inputs * outputs <= 4 else (40, 12, 5)[spatial - 1]
    sizes = [_dimension(draw, most) for _ in range(spatial)]
    image, feature, kernel, stride, padding, dilation = zip(*sizes)
    return Geometry(
        draw(st.integers(1, 3)), groups * inputs, groups * outputs, groups,
        image, feature, kernel, stride, padding, dilation,
    )  # fmt: skip


def _dimension(draw: st.DrawFn, most: int) -> tuple[int, int, int, int, int, int]:
    kernel = draw(st.sampled_from((1, 2, 3, 3, 3, 4, 5, 7)))
    stride = draw(st.sampled_from((1, 1, 2, 3)))
    dilation = draw(st.sampled_from((1, 1, 2, 3)))
    padding = draw(st.integers(-2, 4))
    image = draw(st.integers(1, most))
    fits = (image + 2 * padding - (kernel - 1) * dilation - 1) // stride + 1
    feature = max(1, fits - draw(st.sampled_from((0, 0, 1))))
    return image, feature, kernel, stride, padding, dilation


class Placed:
    """A tensor in memory: its strides, its elements amid canaries."""

    def __init__(self, shape: Sequence[int], item: int, layout: str, seed: int) -> None:
        drawn = random.Random(seed)
        order = list(range(len(shape)))
        if layout == "last":
            order = [0, *order[2:], 1]
        elif layout == "any":
            drawn.shuffle(order)
        strides, step = [0] * len(shape), 1
        for dimension in reversed(order):
            strides[dimension] = step
            step = step * shape[dimension] + (drawn.randint(0, 2) if layout == "any" else 0)
        self.strides, self.item = tuple(strides), item
        self.offsets = [
            _MARGIN + item * sum(map(int.__mul__, index, strides)) for index in product(*map(range, shape))
        ]
        self.buffer = ctypes.create_string_buffer(max(self.offsets) + item + _MARGIN)
        self.address = ctypes.addressof(self.buffer) + _MARGIN

    def holding(self, content: bytes, around: bytes) -> bytes:
        memory = bytearray(around * len(self.buffer))
        for number, offset in enumerate(self.offsets):
            memory[offset : offset + self.item] = content[number * self.item : (number + 1) * self.item]
        return bytes(memory)

    def fill(self, content: bytes) -> None:
        ctypes.memmove(self.buffer, self.holding(content, _POISON), len(self.buffer))

    def clear(self) -> None:
        ctypes.memset(self.buffer, _CANARY[0], len(self.buffer))

    def holds(self, content: bytes) -> bool:
        """Whether the elements are ``content`` and nothing was written between and around them."""
        return self.buffer.raw == self.holding(content, _CANARY)


class Problem:
    """Operands of a direction, drawn by ``seed``; each of the tensors has a layout of its own."""

    def __init__(
        self, direction: str, plain: Geometry, dtype: str, layouts: Sequence[str], bias: bool, seed: int
    ) -> None:
        self.direction, self.plain, self.dtype = direction, plain, dtype
        self.result = {FWD: "feature", BWD_DATA: "image", BWD_WEIGHTS: "weight"}[direction]
        item = ITEM_BYTES[dtype]
        shapes = exact.shapes(plain)
        self.tensors = {
            name: Placed(shape, item, layout, seed + 10 + number)
            for number, ((name, shape), layout) in enumerate(zip(shapes.items(), layouts))
        }
        values = {
            name: exact.integers(seed + number, prod(shape))
            for number, (name, shape) in enumerate(shapes.items())
        }
        of_bias: Optional[list[int]] = None
        self.bias: Optional[Placed] = None
        if bias and direction != BWD_WEIGHTS:
            count = shapes[self.result][1]
            of_bias = exact.integers(seed + 3, count)
            self.bias = Placed((count,), item, "first", seed)
            self.bias.fill(exact.encode(of_bias, dtype))
        for name, placed in self.tensors.items():
            if name != self.result:
                placed.fill(exact.encode(values[name], dtype))
        expected = exact.convolved(
            direction, plain, values["image"], values["weight"], values["feature"], of_bias
        )
        self.expected = exact.encode(expected, dtype)

    def prepared(self, family: Family, variant: str, cap: int) -> Optional[tuple[Launch, ...]]:
        image, weight, feature = (
            Strides.of(self.tensors[name].strides) for name in ("image", "weight", "feature")
        )
        return family.prepare(
            self.direction, self.plain, self.dtype, variant, image=image, weight=weight,
            feature=feature, has_bias=self.bias is not None, cap=cap,
        )  # fmt: skip

    def run(
        self, library: ctypes.CDLL, launches: Sequence[Launch], workspace_bytes: int, seed: int = 1
    ) -> bool:
        """Whether the launches compute the result, to the bit, and write nothing else."""
        self.tensors[self.result].clear()
        addresses = {name: placed.address for name, placed in self.tensors.items()}
        addresses["bias"] = self.bias.address if self.bias else 0
        workspace = ctypes.create_string_buffer(workspace_bytes + 2 * _MARGIN)
        ctypes.memset(workspace, _POISON[0], len(workspace))
        addresses["workspace"] = ctypes.addressof(workspace) + _MARGIN
        on_cpu.run(library, list(launches), addresses, seed)
        around = workspace.raw[:_MARGIN] + workspace.raw[_MARGIN + workspace_bytes :]
        return self.tensors[self.result].holds(self.expected) and around == _POISON * 2 * _MARGIN
