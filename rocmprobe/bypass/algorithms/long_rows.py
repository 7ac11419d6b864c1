"""Long rows: all padded samples of a channel in one row, so that every kernel tap is a shifted view.

If the stride is larger than 1, the image is split into phases (position modulo stride), and each phase has
its own rows. In bwd-data, the rows contain the gradient, and a tap writes to one phase of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil, prod
from typing import Callable

import torch

from rocmprobe.bypass.algorithms.base import BWD_DATA, FWD, Plan, accumulation_dtype
from rocmprobe.bypass.algorithms.columns import index
from rocmprobe.bypass.algorithms.gemm import Buffer, accumulate, ranges
from rocmprobe.geometry import Geometry

Index = tuple[slice, ...]
#: Maximum number of phases. With more phases, launching kernels would take more time than the sums.
MOST_PHASES = 16
#: Function that adds the products of one tap to a sum. Its arguments are the sum, the rows shifted to the
#: tap, the number of the tap, and True for the first tap.
AddTap = Callable[[torch.Tensor, torch.Tensor, int, bool], None]


@dataclass(frozen=True)
class Tap:
    """One position of the convolution kernel.

    Attributes:
        number: index of the tap in the flattened kernel.
        phase: index in ``Layout.sources`` of the phase that the tap reads.
        offset: number of elements by which the tap shifts the rows of this phase.
    """

    number: int
    phase: int
    offset: int


@dataclass(frozen=True)
class Phase:
    """One phase of the result.

    Attributes:
        taps: taps that add to this phase.
        positions: slices of the result.
        windows: slices of the summed rows, to copy to ``positions``.
    """

    taps: tuple[Tap, ...]
    positions: Index
    windows: Index


@dataclass(frozen=True)
class Layout:
    """Layout of the long rows for one direction.

    Attributes:
        sizes: spatial sizes of a padded sample in a row.
        reach: number of elements that the taps read after the last sample.
        sources: for each phase of the source, (slices to read from the source, slices to write in the padded
            sample).
        results: phases of the result. There are up to ``prod(stride)`` phases in bwd-data, and otherwise only
            one.
    """

    sizes: tuple[int, ...]
    reach: int
    sources: tuple[tuple[Index, Index], ...]
    results: tuple[Phase, ...]

    @property
    def positions(self) -> int:
        """Number of elements of one padded sample in a row."""
        return prod(self.sizes)

    def row_elements(self, channels: int, samples: int) -> int:
        """Return the total number of elements in the rows of all channels and source phases."""
        return len(self.sources) * channels * (samples * self.positions + self.reach)


@lru_cache(maxsize=1024)
def layout(plain: Geometry, direction: str) -> Layout:
    """Return the layout for ``direction``. bwd-weights has the layout of fwd."""
    transposed = direction == BWD_DATA
    axes = [_Axis(plain, axis, transposed) for axis in range(len(plain.kernel))]
    sizes = tuple(axis.size for axis in axes)
    steps = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    taps: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    sources: tuple[tuple[Index, Index], ...]
    for number, tap in enumerate(product(*map(range, plain.kernel))):
        phases, offsets = zip(*(axis.taps[position] for axis, position in zip(axes, tap)))
        taps.setdefault(phases, []).append((number, sum(map(int.__mul__, offsets, steps))))
    reach = max(offset for some in taps.values() for _, offset in some)
    whole, ones = (0,) * len(axes), (1,) * len(axes)
    if transposed:
        sources = (_places(axes, whole, plain.feature, ones),)
        results = tuple(
            Phase(
                tuple(Tap(number, 0, offset) for number, offset in taps.get(part, ())),
                *_targets(part, plain.image, plain.stride),
            )
            for part in product(*map(range, plain.stride))
            if all(first < size for first, size in zip(part, plain.image))
        )
    else:
        parts = [_places(axes, part, plain.image, plain.stride) for part in taps]
        all_taps = [
            Tap(number, at, offset) for at, some in enumerate(taps.values()) for number, offset in some
        ]
        sources, results = tuple(parts), (Phase(tuple(all_taps), *_targets(whole, plain.feature, ones)),)
    return Layout(sizes, reach, sources, results)


class _Axis:
    """One spatial dimension: the padded size of a sample, and (phase, offset) of every tap."""

    def __init__(self, plain: Geometry, axis: int, transposed: bool) -> None:
        stride = plain.stride[axis]
        places = [tap * plain.dilation[axis] - plain.padding[axis] for tap in range(plain.kernel[axis])]
        per_phase = ceil(plain.image[axis] / stride)
        sign, windows, most = (
            (-1, per_phase, plain.feature[axis]) if transposed else (1, plain.feature[axis], per_phase)
        )
        shifts = [sign * (place // stride) for place in places]
        self.before = max(0, -min(shifts))
        last = windows + max(shifts)
        self.values = max(0, min(most, last))
        # The same zeros are the padding after one line and before the next line. So the size includes only
        # the longer padding.
        self.size = max(self.values + max(self.before, last - self.values), windows)
        self.taps = [(place % stride, self.before + shift) for place, shift in zip(places, shifts)]


def _places(
    axes: Sequence[_Axis], phase: Sequence[int], sizes: Sequence[int], steps: Sequence[int]
) -> tuple[Index, Index]:
    counts = [min(axis.values, max(0, ceil((n - p) / s))) for axis, p, n, s in zip(axes, phase, sizes, steps)]
    source = (
        slice(p, p + (count - 1) * s + 1, s) if count else slice(0)
        for p, count, s in zip(phase, counts, steps)
    )
    rows = (slice(axis.before, axis.before + count) for axis, count in zip(axes, counts))
    return _spatial(*source), _spatial(*rows)


def _targets(phase: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> tuple[Index, Index]:
    positions = (slice(p, None, s) for p, s in zip(phase, steps))
    windows = (slice(ceil((size - p) / s)) for p, size, s in zip(phase, sizes, steps))
    return _spatial(*positions), _spatial(*windows)


def _spatial(*slices: slice) -> Index:
    return (slice(None), slice(None), *slices)


class LongRows:
    """Buffer that holds one chunk of samples of a source tensor as long rows.

    There is one row for each phase and channel. A row contains the padded samples of the chunk, one after
    another.
    """

    def __init__(self, source: torch.Tensor, form: Layout, samples: int) -> None:
        self._source = source
        self._form = form
        channels = source.shape[1]
        length = samples * form.positions + form.reach
        shape = (len(form.sources), channels, length)
        self._memory = source.new_zeros(shape, dtype=accumulation_dtype(source.dtype))

    def fill(self, first: int, last: int) -> None:
        """Copy the samples ``first:last`` into the rows."""
        some = self._source[first:last].transpose(0, 1)
        length = (last - first) * self._form.positions
        for rows, (positions, places) in zip(self._memory, self._form.sources):
            by_sample = rows[:, :length].view(-1, last - first, *self._form.sizes)
            by_sample[places].copy_(some[positions])

    def shifted(self, tap: Tap, samples: int) -> torch.Tensor:
        """Return the rows from which ``tap`` reads, starting at its offset.

        The result has the shape ``(channels, samples * positions)``.
        """
        return self._memory[tap.phase].narrow(1, tap.offset, samples * self._form.positions)

    def lines(self, fold: Fold, groups: int, buffer: Buffer) -> torch.Tensor:
        """Return the rows of the phase ``fold.phase``, copied and shifted once for each of ``fold.steps``.

        The result has the shape ``(groups, steps * channels / groups, length)``. If there are several steps,
        the result lies in ``buffer``.
        """
        rows = self._memory[fold.phase].view(groups, -1, self._memory.shape[2])
        if len(fold.steps) == 1:
            return rows
        length = rows.shape[2] - fold.steps[-1]
        copies = buffer.take((groups, len(fold.steps), rows.shape[1], length))
        for copy, step in zip(copies.unbind(1), fold.steps):
            copy.copy_(rows.narrow(2, step, length))
        return copies.view(groups, -1, length)


def sum_taps(
    source: torch.Tensor,
    result: torch.Tensor,
    plan: Plan,
    form: Layout,
    bias: torch.Tensor | None,
    add: AddTap,
) -> None:
    """Write the sum over all taps, plus ``bias``, into ``result``.

    ``add`` is called for each tap, and must add the products of the tap to the sum. For the first tap of a
    sum, the last argument of ``add`` is True, and ``add`` must overwrite the sum with the products plus the
    bias.
    """
    rows = LongRows(source, form, plan.samples)
    batch, channels = result.shape[:2]
    dtype = accumulation_dtype(result.dtype)
    memory = result.new_empty(channels * plan.samples * form.positions, dtype=dtype)
    for first, last in ranges(batch, plan.samples):
        rows.fill(first, last)
        samples = last - first
        target = result[first:last].transpose(0, 1)
        # If the last chunk has fewer samples, use only the beginning of ``memory``. The sum must be
        # contiguous, so that PyTorch can compute the products of all groups in one call.
        total = memory[: channels * samples * form.positions].view(channels, -1)
        for phase in form.results:
            into = target[phase.positions]
            if not phase.taps:
                into.zero_() if bias is None else into.copy_(bias.view(-1, 1, *(1 for _ in form.sizes)))
                continue
            for tap in phase.taps:
                add(total, rows.shifted(tap, samples), tap.number, tap is phase.taps[0])
            into.copy_(total.view(channels, samples, *form.sizes)[phase.windows])


@dataclass(frozen=True)
class Fold:
    """Taps that read the same phase of the source, grouped into lines along the last dimension.

    Attributes:
        phase: source phase.
        steps: offset of each tap in a line minus the offset of the first tap. All lines have the same steps.
        lines: taps of each line.
    """

    phase: int
    steps: tuple[int, ...]
    lines: tuple[tuple[Tap, ...], ...]


@lru_cache(maxsize=1024)
def folds(plain: Geometry) -> tuple[Fold, ...]:
    """Return the taps of bwd-weights, grouped by source phase and line."""
    # One matrix product computes all taps of a line, but it needs a shifted copy of the image's rows for each
    # tap. A line with only one tap needs no copy. So if there is only one group, give each tap its own line.
    width = plain.kernel[-1] if plain.groups > 1 else 1
    lines: dict[tuple[int, int], list[Tap]] = {}
    for tap in layout(plain, FWD).results[0].taps:
        lines.setdefault((tap.phase, tap.number // width), []).append(tap)
    by_phase: dict[int, list[tuple[Tap, ...]]] = {}
    for (phase, _), line in lines.items():
        by_phase.setdefault(phase, []).append(tuple(line))
    return tuple(
        Fold(phase, tuple(tap.offset - some[0][0].offset for tap in some[0]), tuple(some))
        for phase, some in by_phase.items()
    )


def weight_elements(plain: Geometry, samples: int) -> int:
    """Return how many elements bwd-weights allocates for rows of the image and of the gradient.

    This includes the shifted copies of the image's rows. ``samples`` is the number of samples in a chunk.
    """
    form = layout(plain, FWD)
    widest = max(len(fold.steps) for fold in folds(plain))
    lines = widest * plain.channels * (samples * form.positions + form.reach) if widest > 1 else 0
    return form.row_elements(plain.channels, samples) + lines + plain.filters * samples * form.positions


def sum_weights(
    plan: Plan, plain: Geometry, image: torch.Tensor, gradient: torch.Tensor, weight_gradient: torch.Tensor
) -> None:
    """Compute bwd-weights, and write the weight gradient into ``weight_gradient``."""
    form = layout(plain, FWD)
    rows = LongRows(image, form, plan.samples)
    dtype = accumulation_dtype(image.dtype)
    # Write the zeros only once: every chunk overwrites the same elements, and the other elements stay zero.
    spread = gradient.new_zeros((plain.filters, plan.samples * form.positions), dtype=dtype)
    lines = Buffer(image, dtype)
    groups, inputs = plain.groups, plain.channels // plain.groups
    totals = {
        line: spread.new_empty((groups, plain.filters // groups, len(line) * inputs))
        for fold in folds(plain)
        for line in fold.lines
    }
    for first, last in ranges(plain.batch, plan.samples):
        rows.fill(first, last)
        gradients = spread[:, : (last - first) * form.positions]
        by_sample = gradients.view(-1, last - first, *form.sizes)
        by_sample[form.results[0].windows].copy_(gradient[first:last].transpose(0, 1))
        for fold in folds(plain):
            source = rows.lines(fold, groups, lines)
            for line in fold.lines:
                view = source.narrow(2, line[0].offset, gradients.shape[1])
                accumulate(totals[line], gradients.view(groups, -1, view.shape[2]), view, first=first == 0)
    places = list(product(*map(range, plain.kernel)))
    for line, total in totals.items():
        by_tap = total.view(plain.filters, len(line), inputs).unbind(1)
        for tap, values in zip(line, by_tap):
            weight_gradient[index(slice(None), slice(None), *places[tap.number])].copy_(values)


def factors_by_tap(weight: torch.Tensor, taps: int) -> torch.Tensor:
    """Return the weight as ``(taps, filters, channels / groups)`` in the dtype of products and sums."""
    copy = weight.new_empty((taps, *weight.shape[:2]), dtype=accumulation_dtype(weight.dtype))
    spatial = weight.dim() - 2
    by_tap = weight.permute(*range(2, 2 + spatial), 0, 1)
    copy.view(by_tap.shape).copy_(by_tap)
    return copy
