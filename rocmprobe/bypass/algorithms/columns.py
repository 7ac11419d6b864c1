"""Functions that copy an image to columns (im2col) and add columns to an image (col2im).

A column contains the values under one window of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import torch

from rocmprobe.geometry import Geometry

#: Range of windows (first window, last window + 1), for each spatial dimension.
Box = Sequence[tuple[int, int]]


def overlap(
    starts: Sequence[int], spans: Sequence[int], sizes: Sequence[int]
) -> tuple[list[slice], list[slice]]:
    """Intersect a box with an image, and return (slices of the image, slices of the box).

    The box starts at the image positions ``starts`` and has the lengths ``spans``. ``sizes`` are the sizes of
    the image.
    """
    image, span = [], []
    for start, length, size in zip(starts, spans, sizes):
        begin, end = (min(max(edge, 0), size) for edge in (start, start + length))
        image.append(slice(begin, end))
        span.append(slice(begin - start, end - start))
    return image, span


class Covered:
    """Reader for the region of an image under some windows, with zeros outside of the image.

    Args:
        image: ``(N, C, *image)`` of any strides.
        plain: sizes of the convolution.
        samples, tile: largest chunk and tile that will be requested.
    """

    def __init__(self, image: torch.Tensor, plain: Geometry, samples: int, tile: Sequence[int]) -> None:
        self._image = image
        self._plain = plain
        self._padded: torch.Tensor | None = None
        self._box: Box | None = None
        if plain.reaches_outside():
            self._padded = image.new_empty((samples, plain.channels, *plain.span(tile)))

    def part(self, first: int, last: int, box: Box) -> torch.Tensor:
        """Return the part of the samples ``first:last`` that the windows in ``box`` cover.

        The next call can overwrite the result ``(n, C, *region)``.
        """
        plain = self._plain
        counts = [end - begin for begin, end in box]
        starts = [begin * s - p for (begin, _), s, p in zip(box, plain.stride, plain.padding)]
        spans = [slice(0, span) for span in plain.span(counts)]
        inside, placed = overlap(starts, plain.span(counts), plain.image)
        everything = slice(None)
        part = self._image[first:last][index(everything, everything, *inside)]
        if self._padded is None or placed == spans:
            return part
        padded = self._padded[index(slice(last - first), everything, *spans)]
        if box != self._box:
            # If the box is the same as in the last call, the border is still zero.
            self._padded.zero_()
            self._box = box
        padded[index(everything, everything, *placed)].copy_(part)
        return padded


class Windows:
    """Reader for the columns of an image.

    Args:
        image: ``(N, C, *image)`` of any strides.
        plain: sizes of the convolution.
        samples, tile: largest chunk and tile that will be requested.
        dtype: dtype of the columns.
    """

    def __init__(
        self, image: torch.Tensor, plain: Geometry, samples: int, tile: Sequence[int], dtype: torch.dtype
    ) -> None:
        self._plain = plain
        self._covered = Covered(image, plain, samples, tile)
        self._columns = image.new_empty(samples * plain.channels * plain.taps * prod(tile), dtype=dtype)

    def columns(self, first: int, last: int, box: Box) -> torch.Tensor:
        """Return the columns of the samples ``first:last`` for the windows in ``box``.

        The next call overwrites the result ``(groups, depth, n * windows)``.
        """
        plain = self._plain
        counts = [end - begin for begin, end in box]
        source = self._covered.part(first, last, box)
        of_sample, of_channel, *inner = source.stride()
        windows = source.as_strided(
            (plain.channels, *plain.kernel, last - first, *counts),
            (
                of_channel,
                *(stride * d for stride, d in zip(inner, plain.dilation)),
                of_sample,
                *(stride * s for stride, s in zip(inner, plain.stride)),
            ),
        )
        columns = self._columns[: windows.numel()]
        columns.view(windows.shape).copy_(windows)
        return columns.view(plain.groups, plain.depth, -1)


def add_back(image: torch.Tensor, columns: torch.Tensor, plain: Geometry, box: Box) -> None:
    """Add the columns ``(groups, depth, n * windows)`` of the windows in ``box`` to ``image``, in place.

    Values outside of the image are dropped.
    """
    counts = [end - begin for begin, end in box]
    taps = columns.view(plain.channels, *plain.kernel, image.shape[0], *counts)
    channels_first = image.transpose(0, 1)
    everything = slice(None)
    for tap in product(*(range(k) for k in plain.kernel)):
        source, target = [], []
        for (begin, end), t, size, s, p, d in zip(
            box, tap, plain.image, plain.stride, plain.padding, plain.dilation
        ):
            offset = t * d - p
            first = max(begin, -(offset // s))
            last = max(first, min(end, (size - 1 - offset) // s + 1))
            source.append(slice(first - begin, last - begin))
            target.append(slice(first * s + offset, (last - 1) * s + offset + 1, s))
        values = taps[index(everything, *tap, everything, *source)]
        if values.numel():
            channels_first[index(everything, everything, *target)].add_(values)


def index(*parts: int | slice) -> tuple[int | slice, ...]:
    """Return ``parts`` as an index of a tensor."""
    # Python 3.9 rejects ``tensor[first, *rest]``.
    return parts
