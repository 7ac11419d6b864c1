"""Partial lowering: the columns of every dimension but the first, which is walked by shifted views.

Cho and Brand, "MEC: Memory-efficient convolution for deep neural network", ICML 2017. A 3x3 convolution
copies each value three times instead of nine, and multiplies three times at a third of the depth. The rows
of the first dimension lie apart by their phase, row modulo stride, so that every shifted view is one matrix.

Workspace: lowered image n * C * taps / kernel[0] * rows(t) * t[1:] * a with the rows that the tile covers,
padded window n * C * span(t) * b, weight w * a, bias K * a, forward: the product n * K * t * a unless the
GEMMs write into the result; bwd-weights: the sum w * a, the gradient n * K * t * a unless it is matrices as
it is, and the products of the samples of a chunk n * w / kernel[0] * a.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

import torch

from rocmprobe.bypass.algorithms.base import (
    BWD_DATA,
    BWD_WEIGHTS,
    FWD,
    Algorithm,
    Needed,
    Operands,
    Plan,
    accumulation_dtype,
    fitted,
    gemm_flops,
    packed,
    weight_traffic,
)
from rocmprobe.bypass.algorithms.columns import Box, Covered
from rocmprobe.bypass.algorithms.gemm import Buffer, as_matrices
from rocmprobe.bypass.algorithms.im2col import inside, pieces
from rocmprobe.geometry import Geometry

#: Lowered samples of one chunk on a CPU: what leaves its caches is read from memory for every tap.
_CPU_BYTES = 1 << 24


class PartialLowering(Algorithm):
    name = "mec"

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        # With one channel in each group its products are too thin.
        if direction == BWD_DATA or plain.groups == plain.channels > 1:
            return None
        needed = _needed(plain, operands, direction)
        whole = (1, *plain.feature[1:])
        if needed(1, whole) > cap:
            return None
        layout = _Layout(plain, plain.feature[0])
        one = plain.channels * layout.width * layout.phases * layout.rows
        most = plain.batch
        if operands.device_type == "cpu":
            most = min(most, max(1, _CPU_BYTES // (one * operands.wide)))
        samples, tile, workspace = fitted(plain.feature, most, needed, cap)
        count = ceil(plain.batch / samples) * ceil(plain.feature[0] / tile[0])
        lowered = plain.batch * one
        sums = plain.batch * plain.filters * prod(plain.feature) * (2 * plain.kernel[0] - 1)
        moved = 2 * lowered * operands.wide + (sums * operands.wide if direction == FWD else 0)
        # The weight, or its gradient, is turned round once besides.
        moved += weight_traffic(plain, operands, direction, plain.batch + 3)
        inner = 1 if plain.groups == 1 else samples
        launches = count * (layout.phases + 2 + plain.kernel[0] * inner)
        return Plan(self.name, False, samples, tile, workspace, gemm_flops(plain), moved, launches)

    def forward(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        feature: torch.Tensor,
    ) -> None:
        lowered = _Lowered(image, plain, plan)
        slices = _weight_slices(weight, plain)
        products = Buffer(image, slices.dtype)
        start = None if bias is None else bias.to(slices.dtype).view(plain.groups, -1, 1)
        for box, first, last in pieces(plain, plan):
            views = lowered.views(first, last, box)
            target = inside(feature[first:last], box)
            ready = as_matrices(target, plain.groups) if target.dtype == slices.dtype else None
            result = products.take(target.shape).view(*_grouped(target, plain)) if ready is None else ready
            for matrices, view, add in zip(slices, views, range(len(views))):
                _multiply(matrices, view, result, start if add == 0 else None, add=add > 0)
            if ready is None:
                target.copy_(result.view(target.shape))

    def backward_weights(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        gradient: torch.Tensor,
        weight_gradient: torch.Tensor,
    ) -> None:
        dtype = accumulation_dtype(image.dtype)
        lowered = _Lowered(image, plain, plan)
        staged = Buffer(gradient, dtype)
        per_group = (plain.filters // plain.groups, plain.depth // plain.kernel[0])
        totals = gradient.new_empty((plain.kernel[0], plain.groups, *per_group), dtype=dtype)
        for number, (box, first, last) in enumerate(pieces(plain, plan)):
            views = lowered.views(first, last, box)
            part = inside(gradient[first:last], box)
            gradients = as_matrices(part, plain.groups) if part.dtype == dtype else None
            if gradients is None:
                copy = staged.take(part.shape)
                copy.copy_(part)
                gradients = copy.view(*_grouped(part, plain))
            for total, view in zip(totals, views):
                _accumulate(total, gradients, view, number == 0)
        shape = (plain.kernel[0], *weight_gradient.shape[:2], *plain.kernel[1:])
        weight_gradient.copy_(totals.view(shape).movedim(0, 2))


class _Layout:
    """Where the rows that ``windows`` windows of the first dimension cover lie: by phase, then in order."""

    def __init__(self, plain: Geometry, windows: int) -> None:
        stride, dilation, taps = plain.stride[0], plain.dilation[0], plain.kernel[0]
        offsets = [tap * dilation for tap in range(taps)]
        self.phases = 1 + max(offset % stride for offset in offsets)
        self.span = (windows - 1) * stride + offsets[-1] + 1
        self.rows = windows + max(offset // stride for offset in offsets)
        #: Values of one channel in a row: inner taps times inner windows.
        self.width = prod(plain.kernel[1:]) * prod(plain.feature[1:])
        self.starts = [offset % stride * self.rows + offset // stride for offset in offsets]


class _Lowered:
    """Lowers chunk after chunk into one buffer."""

    def __init__(self, image: torch.Tensor, plain: Geometry, plan: Plan) -> None:
        self._plain = plain
        self._covered = Covered(image, plain, plan.samples, plan.tile)
        self._buffer = Buffer(image, accumulation_dtype(image.dtype))
        layout = _Layout(plain, plan.tile[0])
        self._buffer.take((plan.samples, plain.channels, layout.phases, layout.rows, layout.width))

    def views(self, first: int, last: int, box: Box) -> list[torch.Tensor]:
        """For each tap of the first dimension ``(n, groups, depth / kernel[0], windows)``."""
        plain = self._plain
        counts = [end - begin for begin, end in box]
        source = self._covered.part(first, last, box)
        layout = _Layout(plain, counts[0])
        shape = (last - first, plain.channels, *plain.kernel[1:])
        lowered = self._buffer.take((*shape, layout.phases, layout.rows, *counts[1:]))
        of_sample, of_channel, of_row, *inner = source.stride()
        taps = [stride * d for stride, d in zip(inner, plain.dilation[1:])]
        steps = [stride * s for stride, s in zip(inner, plain.stride[1:])]
        lead = len(shape)
        for phase in range(layout.phases):
            rows = min(layout.rows, (layout.span - 1 - phase) // plain.stride[0] + 1)
            windows = source.as_strided(
                (*shape, rows, *counts[1:]),
                (of_sample, of_channel, *taps, of_row * plain.stride[0], *steps),
                source.storage_offset() + phase * of_row,
            )
            lowered.select(lead, phase).narrow(lead, 0, rows).copy_(windows)
        inside_row = prod(counts[1:])
        matrices = lowered.view(last - first, plain.groups, plain.depth // plain.kernel[0], -1)
        return [matrices.narrow(3, start * inside_row, counts[0] * inside_row) for start in layout.starts]


def _needed(plain: Geometry, operands: Operands, direction: str) -> Needed:
    padded = plain.reaches_outside()
    weight = plain.filters * plain.depth
    in_place = operands.wide == operands.size and operands.dense and not operands.channels_last

    def needed(samples: int, windows: Sequence[int]) -> int:
        layout = _Layout(plain, windows[0])
        lowered = samples * plain.channels * layout.width * layout.phases * layout.rows
        window = samples * plain.channels * prod(plain.span(windows)) if padded else 0
        side = 0 if in_place else samples * plain.filters * prod(windows)
        products = (samples + 1) * weight // plain.kernel[0] if direction == BWD_WEIGHTS else 0
        return (lowered + weight + side + products + plain.filters) * operands.wide + window * operands.size

    return needed


def _weight_slices(weight: torch.Tensor, plain: Geometry) -> torch.Tensor:
    """``(kernel[0], groups, filters / groups, depth / kernel[0])`` in the dtype of the GEMMs."""
    return packed(weight.movedim(2, 0)).view(plain.kernel[0], plain.groups, plain.filters // plain.groups, -1)


def _grouped(tensor: torch.Tensor, plain: Geometry) -> Sequence[int]:
    return (tensor.shape[0], plain.groups, tensor.shape[1] // plain.groups, -1)


def _multiply(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None, add: bool
) -> None:
    """``out[n] (+)= left @ right[n]``, plus a bias ``(groups, rows, 1)``; left ``(groups, rows, inner)``."""
    samples, groups = right.shape[:2]
    if samples == 1 and groups == 1:
        first = out[0, 0] if add else None if bias is None else bias[0]
        if first is None:
            torch.mm(left[0], right[0, 0], out=out[0, 0])
        else:
            torch.addmm(first, left[0], right[0, 0], out=out[0, 0])
        return
    if groups == 1:
        products = [(left.expand(samples, *left.shape[1:]), right[:, 0], out[:, 0])]
    else:
        products = [(left, right[sample], out[sample]) for sample in range(samples)]
    for one, other, result in products:
        if add:
            result.baddbmm_(one, other)
        elif bias is None:
            torch.bmm(one, other, out=result)
        else:
            torch.baddbmm(bias, one, other, out=result)


def _accumulate(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor, first: bool) -> None:
    """``total (+)= sum over n of left[n] @ right[n].T`` in each group."""
    samples, groups = right.shape[:2]
    if groups == 1 and samples > 1 and total.numel() * samples <= right.numel():
        products = torch.bmm(left[:, 0], right[:, 0].transpose(1, 2))
        if first:
            torch.sum(products, 0, out=total[0])
        else:
            total[0].add_(products.sum(0))
        return
    for sample in range(samples):
        transposed = right[sample].transpose(1, 2)
        if groups > 1:
            if first and sample == 0:
                torch.bmm(left[sample], transposed, out=total)
            else:
                total.baddbmm_(left[sample], transposed)
        elif first and sample == 0:
            torch.mm(left[sample, 0], transposed[0], out=total[0])
        else:
            total[0].addmm_(left[sample, 0], transposed[0])
