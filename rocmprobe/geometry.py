"""Sizes of a convolution problem, without tensors.

A convolution maps an *image* to a *feature* tensor, which has one value for each filter and each position of
the filter window. A transposed convolution maps feature to image. Source: Dumoulin and Visin, "A guide to
convolution arithmetic for deep learning", 2016, chapter 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

FWD = "fwd"
BWD_DATA = "bwd-data"
BWD_WEIGHTS = "bwd-weights"

#: Limit of PyTorch's sizes.
_MOST_ELEMENTS = (1 << 63) - 1


@dataclass(frozen=True)
class Geometry:
    """A convolution from image ``(batch, channels, *image)`` to feature ``(batch, filters, *feature)``.

    The weight is ``(filters, channels / groups, *kernel)``. Window ``o`` covers the image positions ``o *
    stride - padding + tap * dilation``, with ``tap`` from 0 to ``kernel - 1``. Positions outside the image
    are zero. ``feature`` can be smaller than the number of windows that fit into the padded image.
    """

    batch: int
    channels: int
    filters: int
    groups: int
    image: tuple[int, ...]
    feature: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def taps(self) -> int:
        """Product of the kernel sizes."""
        return prod(self.kernel)

    @property
    def depth(self) -> int:
        """Number of values in one filter: channels / groups * taps."""
        return self.channels // self.groups * self.taps

    @property
    def flops(self) -> int:
        """Number of multiplications and additions if a matrix product computes one direction."""
        return 2 * self.batch * self.filters * self.depth * prod(self.feature)

    def span(self, windows: Sequence[int]) -> tuple[int, ...]:
        """Return the size of the image region that ``windows`` neighbouring windows cover."""
        return tuple(
            (w - 1) * s + (k - 1) * d + 1
            for w, s, k, d in zip(windows, self.stride, self.kernel, self.dilation)
        )

    def reaches_outside(self) -> bool:
        """Return True if a window covers positions outside the image."""
        return any(p > 0 or e - p > i for p, e, i in zip(self.padding, self.span(self.feature), self.image))

    def is_pointwise(self) -> bool:
        """Return True for a 1x1 kernel with stride 1, no padding, and equal sizes of image and feature."""
        ones = (1,) * len(self.kernel)
        return (
            self.kernel == ones
            and self.stride == ones
            and not any(self.padding)
            and self.image == self.feature
        )

    def has_full_feature(self) -> bool:
        """Return True if PyTorch accepts the padding, and computes a feature of this size for the image."""
        sizes = output_sizes(
            self.image, self.kernel, stride=self.stride, padding=self.padding, dilation=self.dilation
        )
        return min(self.padding) >= 0 and sizes == self.feature

    def flipped(self) -> Geometry:
        """Return the convolution that computes the image's gradient from the feature's gradient.

        Requires stride 1. The caller must reverse the weight's taps, and swap channels and filters in each
        group.
        """
        reach = [(k - 1) * d for k, d in zip(self.kernel, self.dilation)]
        return replace(
            self,
            channels=self.filters,
            filters=self.channels,
            image=self.feature,
            feature=self.image,
            padding=tuple(r - p for r, p in zip(reach, self.padding)),
        )


def output_sizes(
    input_sizes: Sequence[int],
    kernel: Sequence[int],
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool = False,
    output_padding: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Return the spatial output sizes (formulas of PyTorch's Conv2d and ConvTranspose2d)."""
    extra = output_padding or (0,) * len(kernel)
    reach = [(k - 1) * d for k, d in zip(kernel, dilation)]
    if transposed:
        return tuple(
            (i - 1) * s - 2 * p + r + o + 1
            for i, s, p, r, o in zip(input_sizes, stride, padding, reach, extra)
        )
    return tuple((i + 2 * p - r - 1) // s + 1 for i, s, p, r in zip(input_sizes, stride, padding, reach))


def geometry(
    input_shape: Sequence[int],
    weight_shape: Sequence[int],
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool = False,
    output_padding: Sequence[int] | None = None,
    groups: int = 1,
) -> Geometry:
    """Return the ``Geometry`` of a convolution with PyTorch's arguments.

    ``input_shape`` is ``(N, C, *spatial)``. ``weight_shape`` is in PyTorch's layout.

    Raises:
        ValueError: if PyTorch would reject the arguments, or if the output has no elements.
    """
    spatial = len(weight_shape) - 2
    extra = tuple(output_padding or (0,) * spatial)
    lists = (stride, padding, dilation, extra)
    if spatial < 1 or len(input_shape) != spatial + 2 or any(len(each) != spatial for each in lists):
        raise ValueError("input, weight and settings differ in their number of spatial dimensions")
    if groups < 1 or min(stride) < 1 or min(dilation) < 1 or min(padding) < 0 or min(extra) < 0:
        raise ValueError("stride, dilation and groups must be at least 1, paddings at least 0")
    if transposed and any(o >= max(s, d) for o, s, d in zip(extra, stride, dilation)):
        raise ValueError("output padding must be smaller than stride or dilation")
    channels, outer = input_shape[1], weight_shape[0]
    expected = outer if transposed else weight_shape[1] * groups
    if channels != expected or outer % groups:
        raise ValueError("input channels, weight channels and groups do not match")
    kernel, sizes = tuple(weight_shape[2:]), tuple(input_shape[2:])
    output = output_sizes(
        sizes,
        kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        transposed=transposed,
        output_padding=extra,
    )
    if min(*input_shape, *weight_shape, *output) < 1:
        raise ValueError("there is nothing to compute")
    if input_shape[0] * prod(output) > _MOST_ELEMENTS:
        raise ValueError("the output is too large for PyTorch")
    image = output if transposed else sizes
    return Geometry(
        batch=input_shape[0],
        channels=weight_shape[1] * groups,
        filters=outer,
        groups=groups,
        image=image,
        feature=sizes if transposed else output,
        kernel=kernel,
        # Replace values that have no effect: strides beyond the image, and the dilation of a single tap.
        stride=tuple(min(s, i + 2 * p) for s, i, p in zip(stride, image, padding)),
        padding=tuple(padding),
        dilation=tuple(d if k > 1 else 1 for d, k in zip(dilation, kernel)),
    )
