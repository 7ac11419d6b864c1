"""One input channel in each group, at stride 1: multiply-adds on shifted views of long rows.

As in "shift", the padded samples of a channel are one row, and a tap is a view that begins a few places
later: short rows of an image become one long run for the processor. What is between the windows is left out
in the end.

Workspace: padded image n * C * padded * a, sum n * K * padded * a, weight K * taps * a, bias K * a; for
bwd-weights the gradient takes the place of the sum, and a product n * K * padded * a comes besides.
"""

from __future__ import annotations

from math import ceil, prod

import torch

from rocmprobe.bypass.algorithms.base import (
    BWD_DATA,
    BWD_WEIGHTS,
    Algorithm,
    Operands,
    Plan,
    accumulation_dtype,
    gemm_flops,
    largest,
)
from rocmprobe.bypass.algorithms.gemm import ranges
from rocmprobe.bypass.algorithms.shift import Padded, among_padded
from rocmprobe.kernels.geometry import Geometry

#: Rows of one chunk on a CPU: what leaves its caches is read from memory for every tap.
_CPU_BYTES = 1 << 23


class DepthwiseShift(Algorithm):
    name = "depthwise-shift"

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        depthwise = plain.groups == plain.channels > 1
        if direction == BWD_DATA or not depthwise or set(plain.stride) != {1}:
            return None
        sides = plain.channels + plain.filters * (2 if direction == BWD_WEIGHTS else 1)

        def needed(samples: int) -> int:
            rows = samples * prod(plain.span(plain.feature)) * sides
            # A last chunk of fewer samples is copied before it is rows.
            twice = 2 if samples < plain.batch and plain.batch % samples else 1
            return (twice * rows + 2 * plain.filters * (plain.taps + 1)) * operands.wide

        if needed(1) > cap:
            return None
        most = plain.batch
        if operands.device_type == "cpu":
            most = largest(plain.batch, lambda count: needed(count) <= _CPU_BYTES)
        samples = largest(most, lambda count: needed(count) <= cap)
        positions = plain.batch * prod(plain.span(plain.feature))
        moved = (plain.taps + 2) * positions * plain.filters * operands.wide
        launches = ceil(plain.batch / samples) * (3 + plain.taps * (2 if direction == BWD_WEIGHTS else 1))
        return Plan(
            self.name, False, samples, plain.feature, needed(samples), gemm_flops(plain), moved, launches
        )  # fmt: skip

    def forward(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        feature: torch.Tensor,
    ) -> None:
        padded = Padded(image, plain, plan.samples)
        multiple = plain.filters // plain.channels
        factors = _by_tap(weight, plain)
        sums = image.new_empty((plain.filters, plan.samples, *padded.sizes), dtype=factors.dtype)
        start = None if bias is None else bias.to(factors.dtype).view(plain.channels, multiple, 1)
        for first, last in ranges(plain.batch, plan.samples):
            rows = padded.rows(first, last).unsqueeze(1)
            some = sums[:, : last - first].reshape(plain.channels, multiple, -1)
            length = rows.shape[2] - padded.offsets[-1]
            total = some.narrow(2, 0, length)
            for number, (factor, offset) in enumerate(zip(factors, padded.offsets)):
                view = rows.narrow(2, offset, length)
                if number:
                    total.addcmul_(view, factor)
                elif start is None:
                    torch.mul(view, factor, out=total)
                else:
                    torch.addcmul(start, view, factor, out=total)
            windows = some.view(plain.filters, last - first, *padded.sizes)
            feature[first:last].copy_(windows[among_padded(plain)].transpose(0, 1))

    def backward_weights(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        gradient: torch.Tensor,
        weight_gradient: torch.Tensor,
    ) -> None:
        padded = Padded(image, plain, plan.samples)
        multiple = plain.filters // plain.channels
        dtype = accumulation_dtype(image.dtype)
        spread = gradient.new_zeros((plain.filters, plan.samples, *padded.sizes), dtype=dtype)
        products = torch.empty_like(spread)
        totals = gradient.new_zeros((plain.taps, plain.channels, multiple), dtype=dtype)
        for first, last in ranges(plain.batch, plan.samples):
            rows = padded.rows(first, last).unsqueeze(1)
            some = spread[:, : last - first]
            some[among_padded(plain)].copy_(gradient[first:last].transpose(0, 1))
            length = rows.shape[2] - padded.offsets[-1]
            gradients = some.reshape(plain.channels, multiple, -1).narrow(2, 0, length)
            product = products.view(plain.channels, multiple, -1).narrow(2, 0, length)
            for total, offset in zip(totals, padded.offsets):
                torch.mul(rows.narrow(2, offset, length), gradients, out=product)
                total.add_(product.sum(2))
        weight_gradient.copy_(totals.permute(1, 2, 0).reshape(weight_gradient.shape))


def _by_tap(weight: torch.Tensor, plain: Geometry) -> torch.Tensor:
    """``(taps, channels, filters / channels, 1)`` in the dtype of the sums."""
    by_tap = weight.reshape(plain.channels, plain.filters // plain.channels, plain.taps, 1).permute(
        2, 0, 1, 3
    )
    copy = weight.new_empty(by_tap.shape, dtype=accumulation_dtype(weight.dtype))
    copy.copy_(by_tap)
    return copy
