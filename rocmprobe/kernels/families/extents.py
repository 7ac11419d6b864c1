"""Sizes and strides of tensors, padded to three spatial dimensions."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from rocmprobe.geometry import Geometry
from rocmprobe.kernels.exact import shapes

#: Every offset in a launch is smaller than this number of bytes.
REACH = 2**31
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
#: Maximum number of blocks of a grid in y and in z. HIP allows more.
GRID = 65535
#: Maximum sum of the numbers of taps in the three dimensions. Each tap of a dimension has a bit in a 32-bit
#: word. The remaining bit is ``NEVER``.
TAP_BITS = 31
#: Bit that marks the padding at the end of a table of taps. If an entry has this bit, a kernel reads no value
#: for the entry. Entries of taps do not have this bit (see ``TAP_BITS`` and ``DISPLACEMENTS``).
NEVER = 1 << 31
#: Limits, one for each dimension, of the distance between the first and the last tap in a wide tile (see
#: ``tiles.Tile``). A 32-bit word stores the distances of all three dimensions. The remaining bit is NEVER.
DISPLACEMENTS = (1 << 9, 1 << 11, 1 << 11)


@dataclass(frozen=True)
class Strides:
    """Strides of a tensor, in elements, all at least 0.

    Attributes:
        outer: stride between samples (image and feature) or filters (weight).
        inner: stride between channels (image and weight) or filters (feature).
        axes: strides of the spatial dimensions.
    """

    outer: int
    inner: int
    axes: tuple[int, ...]

    @classmethod
    def of(cls, strides: Sequence[int]) -> Strides:
        """Build from strides in PyTorch's order of dimensions."""
        return cls(strides[0], strides[1], tuple(strides[2:]))

    def padded(self) -> Strides:
        """Return strides with three spatial dimensions. New dimensions come first and have the stride 0."""
        return replace(self, axes=(0,) * (3 - len(self.axes)) + self.axes)


def padded(plain: Geometry) -> Geometry:
    """Return the convolution with three spatial dimensions. New dimensions come first."""
    missing = 3 - len(plain.kernel)
    ones, zeros = (1,) * missing, (0,) * missing
    return replace(
        plain,
        image=ones + plain.image,
        feature=ones + plain.feature,
        kernel=ones + plain.kernel,
        stride=ones + plain.stride,
        padding=zeros + plain.padding,
        dilation=ones + plain.dilation,
    )


def addressable(plain: Geometry, item: int, image: Strides, weight: Strides, feature: Strides) -> bool:
    """Return True if the elements of each tensor, including gaps, span at most REACH bytes."""
    inner = plain.channels // plain.groups
    tensors = (
        (image, (plain.batch, plain.channels, *plain.image)),
        (weight, (plain.filters, inner, *plain.kernel)),
        (feature, (plain.batch, plain.filters, *plain.feature)),
    )
    spans = (
        1 + sum((size - 1) * step for size, step in zip(shape, (strides.outer, strides.inner, *strides.axes)))
        for strides, shape in tensors
    )
    return max(spans) * item <= REACH


def is_dense_addressable(plain: Geometry) -> bool:
    """Return True if each tensor spans at most REACH bytes as contiguous float32."""
    return max(map(prod, shapes(plain).values())) * 4 <= REACH


class Divisor(ctypes.Structure):
    """A divisor in the arguments of a kernel, declared in ``source/common.hip``.

    For n below 2**31, ``n * multiplier >> 31 >> shift`` is ``n // value``. Source: Granlund and Montgomery,
    "Division by invariant integers using multiplication", 1994, theorem 4.2.
    """

    _fields_ = [("value", ctypes.c_uint32), ("multiplier", ctypes.c_uint32), ("shift", ctypes.c_int32)]

    @classmethod
    def of(cls, value: int) -> Divisor:
        shift = (value - 1).bit_length()
        return cls(value, -(-(1 << (31 + shift)) // value), shift)


def divisors(sizes: Sequence[int]) -> tuple[Divisor, ...]:
    """Return the divisors that find a position in an array of these sizes, e.g. z * y * x, y * x and x."""
    return tuple(Divisor.of(prod(sizes[place:])) for place in range(len(sizes)))


def round_up(value: int, step: int) -> int:
    """Return ``value`` rounded up to a multiple of ``step``."""
    return -(-value // step) * step
