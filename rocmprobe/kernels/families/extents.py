"""Sizes and strides of tensors, padded to three spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rocmprobe.geometry import Geometry

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


def span(strides: Strides, samples: int, channels: int, sizes: Sequence[int]) -> int:
    """Return the number of elements from the first to the last element of a tensor, including gaps."""
    steps = (strides.outer, strides.inner, *strides.axes)
    return 1 + sum((size - 1) * step for size, step in zip((samples, channels, *sizes), steps))


def sample_limit(strides: Strides, channels: int, sizes: Sequence[int], item_bytes: int) -> int:
    """Return how many samples of one tensor a launch can address, or 0 if a single sample is too large."""
    one = span(strides, 1, channels, sizes) * item_bytes
    if one > REACH:
        return 0
    return 1 + (REACH - one) // max(1, strides.outer * item_bytes)


def addressable(plain: Geometry, item_bytes: int, image: Strides, feature: Strides) -> int:
    """Return how many samples of image and feature one launch can address, at most the batch size."""
    return min(
        plain.batch,
        sample_limit(image, plain.channels, plain.image, item_bytes),
        sample_limit(feature, plain.filters, plain.feature, item_bytes),
    )


def reciprocal(divisor: int) -> tuple[int, int]:
    """Return ``(multiplier, shift)`` to replace division by ``divisor``.

    For n below 2**31, ``n * multiplier >> 31 >> shift`` is ``n // divisor``. Source: Granlund and Montgomery,
    "Division by invariant integers using multiplication", 1994, theorem 4.2.
    """
    shift = (divisor - 1).bit_length()
    return -(-(1 << (31 + shift)) // divisor), shift


def round_up(value: int, step: int) -> int:
    """Return ``value`` rounded up to a multiple of ``step``."""
    return -(-value // step) * step
