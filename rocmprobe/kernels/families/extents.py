"""Tensors as kernels address them: three spatial dimensions, and 32-bit offsets from a base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rocmprobe.geometry import Geometry

#: Bytes that an offset inside a launch stays below.
REACH = 2**31
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
#: Blocks that a grid may have in y and z (CUDA's limit; HIP allows more).
GRID = 65535
#: Taps of all dimensions together that a word has bits for, next to NEVER.
TAP_BITS = 31
#: A bit that no position has, so that nothing is read where it is asked for.
NEVER = 1 << 31
#: What fits into a word of three displacements, one in each dimension.
DISPLACEMENTS = (1 << 10, 1 << 11, 1 << 11)


@dataclass(frozen=True)
class Strides:
    """Distances between neighbours in elements, all at least 0.

    Attributes:
        outer: of samples (image and feature), or of filters (weight).
        inner: of channels; a feature's are its filters, a weight's those of its group.
        axes: of the spatial dimensions.
    """

    outer: int
    inner: int
    axes: tuple[int, ...]

    @classmethod
    def of(cls, strides: Sequence[int]) -> Strides:
        """From a tensor's strides in PyTorch's order of dimensions."""
        return cls(strides[0], strides[1], tuple(strides[2:]))

    def padded(self) -> Strides:
        """With three spatial dimensions; those that a problem lacks come first."""
        return replace(self, axes=(0,) * (3 - len(self.axes)) + self.axes)


def padded(plain: Geometry) -> Geometry:
    """The same problem with three spatial dimensions."""
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
    """Elements from the first to the last of so many samples, both included."""
    steps = (strides.outer, strides.inner, *strides.axes)
    return 1 + sum((size - 1) * step for size, step in zip((samples, channels, *sizes), steps))


def sample_limit(strides: Strides, channels: int, sizes: Sequence[int], item_bytes: int) -> int:
    """How many samples one launch can address; 0 where not even one."""
    one = span(strides, 1, channels, sizes) * item_bytes
    if one > REACH:
        return 0
    return 1 + (REACH - one) // max(1, strides.outer * item_bytes)


def addressable(plain: Geometry, item_bytes: int, image: Strides, feature: Strides) -> int:
    """How many samples of image and feature one launch can address, at most those of the problem."""
    return min(
        plain.batch,
        sample_limit(image, plain.channels, plain.image, item_bytes),
        sample_limit(feature, plain.filters, plain.feature, item_bytes),
    )


def reciprocal(divisor: int) -> tuple[int, int]:
    """Multiplier and shift with which ``n * multiplier >> 31 >> shift`` is ``n // divisor``, n below 2**31
    (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994, theorem 4.2)."""
    shift = (divisor - 1).bit_length()
    return -(-(1 << (31 + shift)) // divisor), shift


def up(value: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-value // step) * step
