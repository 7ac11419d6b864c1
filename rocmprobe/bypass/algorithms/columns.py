"""Parts of a convolution that are computed one after another, with their columns.

A column contains the values under one window of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import Union

import torch

from rocmprobe.bypass.algorithms.matrices import Buffer, ranges
from rocmprobe.geometry import Geometry

#: Range of windows (first window, last window + 1), for each spatial dimension.
Box = Sequence[tuple[int, int]]
#: Part of a tensor: (dimension, start, length) of each dimension that is not taken as a whole.
Part = tuple[tuple[int, int, int], ...]


def pieces(plain: Geometry, groups: int, samples: int, tile: Sequence[int]) -> tuple[Piece, ...]:
    """Split a convolution into parts of its groups, chunks of samples and tiles of windows."""
    boxes = list(product(*(ranges(size, step) for size, step in zip(plain.feature, tile))))
    return tuple(
        Piece(plain, some_groups, some_samples, box, begins=number == 0, ends=number == len(boxes) - 1)
        for some_groups in ranges(plain.groups, groups)
        for some_samples in ranges(plain.batch, samples)
        for number, box in enumerate(boxes)
    )


class Piece:
    """Some windows of some samples in some groups. All sizes and offsets are computed once.

    Attributes:
        groups: number of groups.
        samples: number of samples.
        counts: number of windows, for each spatial dimension.
        first: True for the first piece of these groups.
        begins: True for the first piece of these samples.
        ends: True for the last piece of these samples.
    """

    def __init__(
        self,
        plain: Geometry,
        groups: tuple[int, int],
        samples: tuple[int, int],
        box: Box,
        *,
        begins: bool,
        ends: bool,
    ) -> None:
        self._plain = plain
        self._box = box
        self.groups = groups[1] - groups[0]
        self.samples = samples[1] - samples[0]
        self.counts = tuple(end - begin for begin, end in box)
        self.first = begins and samples[0] == 0
        self.begins = begins
        self.ends = ends
        self._groups = _part(0, *groups, plain.groups)
        channels, filters = plain.channels // plain.groups, plain.filters // plain.groups
        chunk = _part(0, *samples, plain.batch)
        self._channels = _part(1, groups[0] * channels, groups[1] * channels, plain.channels)
        self._image = chunk + self._channels
        self._windows = chunk + _part(1, groups[0] * filters, groups[1] * filters, plain.filters)
        self._windows += tuple(
            place
            for dimension, ((begin, end), size) in enumerate(zip(box, plain.feature), 2)
            for place in _part(dimension, begin, end, size)
        )
        region: list[tuple[int, int, int]] = []
        pads: list[int] = []
        for dimension, ((begin, _), s, p, span, size) in enumerate(
            zip(box, plain.stride, plain.padding, plain.span(self.counts), plain.image), 2
        ):
            start = begin * s - p
            low, high = (min(max(edge, 0), size) for edge in (start, start + span))
            region += _part(dimension, low, high, size)
            before = min(max(-start, 0), span)
            pads += [before, span - before - (high - low)]
        self._region = (*self._image, *region)
        # PyTorch expects the last dimension first.
        self._pads = [pad for at in range(len(pads) - 2, -1, -2) for pad in pads[at : at + 2]]
        if not any(self._pads):
            self._pads = []
        self._shape = (self.groups * channels, *plain.kernel, self.samples, *self.counts)
        self._matrices = (self.groups, plain.depth, self.samples * prod(self.counts))

    def of_groups(self, matrices: torch.Tensor) -> torch.Tensor:
        """Return the groups of this piece. The first dimension of ``matrices`` is the group."""
        return _narrowed(matrices, self._groups)

    def of_channels(self, bias: torch.Tensor) -> torch.Tensor:
        """Return the channels of this piece from a tensor with one value for each channel of the image."""
        return _narrowed(bias, self._channels)

    def of_image(self, image: torch.Tensor) -> torch.Tensor:
        """Return the samples and channels of this piece."""
        return _narrowed(image, self._image)

    def of_feature(self, feature: torch.Tensor) -> torch.Tensor:
        """Return the windows of this piece."""
        return _narrowed(feature, self._windows)

    def columns(self, image: torch.Tensor, buffer: Buffer) -> torch.Tensor:
        """Return the columns ``(groups, depth, samples * windows)`` of the windows, in ``buffer``."""
        source = _narrowed(image, self._region)
        if self._pads:
            source = torch.constant_pad_nd(source, self._pads)
        plain = self._plain
        of_sample, of_channel, *inner = source.stride()
        windows = source.as_strided(
            self._shape,
            (
                of_channel,
                *[stride * d for stride, d in zip(inner, plain.dilation)],
                of_sample,
                *[stride * s for stride, s in zip(inner, plain.stride)],
            ),
        )
        columns = buffer.take(self._shape)
        columns.copy_(windows)
        return columns.view(self._matrices)

    def add_columns(self, image: torch.Tensor, columns: torch.Tensor) -> None:
        """Add columns ``(groups, depth, samples * windows)`` to :meth:`of_image` of an image, in place.

        Values outside of the image are dropped.
        """
        taps = columns.view(self._shape)
        channels_first = image.transpose(0, 1)
        for source, target in self._scatter:
            channels_first[target].add_(taps[source])

    @cached_property
    def _scatter(self) -> list[tuple[tuple[Union[int, slice], ...], tuple[slice, ...]]]:
        """Indices of the columns and of the image, for each tap that lies inside the image."""
        plain, everything = self._plain, slice(None)
        found: list[tuple[tuple[Union[int, slice], ...], tuple[slice, ...]]] = []
        for tap in product(*(range(k) for k in plain.kernel)):
            source, target = [], []
            for (begin, end), t, size, s, p, d in zip(
                self._box, tap, plain.image, plain.stride, plain.padding, plain.dilation
            ):
                offset = t * d - p
                first = max(begin, -(offset // s))
                last = max(first, min(end, (size - 1 - offset) // s + 1))
                source.append(slice(first - begin, last - begin))
                target.append(slice(first * s + offset, (last - 1) * s + offset + 1, s))
            if all(each.stop > each.start for each in source):
                found.append(((everything, *tap, everything, *source), (everything, everything, *target)))
        return found


def _part(dimension: int, start: int, stop: int, size: int) -> Part:
    return () if (start, stop) == (0, size) else ((dimension, start, stop - start),)


def _narrowed(tensor: torch.Tensor, part: Part) -> torch.Tensor:
    for dimension, start, length in part:
        tensor = tensor.narrow(dimension, start, length)
    return tensor
