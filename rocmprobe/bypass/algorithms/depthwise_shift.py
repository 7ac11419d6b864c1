"""Algorithm for one input channel per group: multiply and add shifted views of long rows.

Workspace (symbols: see ``base``), where "positions" is the number of elements of a padded sample in one row:

- long rows of the source: n * positions * a for each channel and each phase of the source
- sums of the result: n * positions * a for each channel of the result
- copy of the weight: K * taps * a
- copy of the bias: K * a

bwd-weights needs rows for the gradient instead of the sums. bwd-weights can also need shifted copies of the
rows of one phase. The number of copies is at most the size of the kernel's last dimension.
"""

from __future__ import annotations

from math import ceil, prod

import torch

from rocmprobe.bypass.algorithms.base import (
    BWD_DATA,
    BWD_WEIGHTS,
    FWD,
    Algorithm,
    Operands,
    Plan,
    gemm_flops,
    largest,
)
from rocmprobe.bypass.algorithms.long_rows import (
    MOST_PHASES,
    factors_by_tap,
    layout,
    sum_taps,
    sum_weights,
    weight_elements,
)
from rocmprobe.geometry import Geometry

#: Maximum bytes of the rows of one chunk (samples computed at once) on a CPU. Larger rows do not fit into the
#: caches and are read from memory again for every tap.
_CPU_BYTES = 1 << 23


class DepthwiseShift(Algorithm):
    name = "depthwise-shift"

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        if not plain.groups == plain.channels > 1 or prod(plain.stride) > MOST_PHASES:
            return None
        form = layout(plain, direction)
        source, result = plain.channels, plain.filters
        if direction == BWD_DATA:
            source, result = result, source

        def needed(samples: int) -> int:
            rows = form.row_elements(source, samples) + result * samples * form.positions
            if direction == BWD_WEIGHTS:
                rows = weight_elements(plain, samples)
            return (rows + 2 * plain.filters * (plain.taps + 1)) * operands.wide

        if needed(1) > cap:
            return None
        most = plain.batch
        if operands.device_type == "cpu":
            most = largest(plain.batch, lambda count: needed(count) <= _CPU_BYTES)
        samples = largest(most, lambda count: needed(count) <= cap)
        positions = plain.batch * form.positions
        moved = (plain.taps + 2) * positions * plain.filters * operands.wide
        if direction == BWD_WEIGHTS:
            moved = 2 * plain.batch * weight_elements(plain, 1) * operands.wide
        launches = ceil(plain.batch / samples) * (1 + len(form.sources) + len(form.results) + plain.taps)
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
        factors = _by_channel(weight, plain)
        start = None if bias is None else bias.to(factors.dtype)
        by_channel = None if start is None else start.view(factors.shape[1:])

        def add(total: torch.Tensor, rows: torch.Tensor, tap: int, first: bool) -> None:
            _add(total.view(*factors.shape[1:3], -1), rows.unsqueeze(1), factors[tap], first, by_channel)

        sum_taps(image, feature, plan, layout(plain, FWD), start, add)

    def backward_data(
        self,
        plan: Plan,
        plain: Geometry,
        gradient: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        image: torch.Tensor,
    ) -> None:
        factors = _by_channel(weight, plain)
        start = None if bias is None else bias.to(factors.dtype)
        by_channel = None if start is None else start.view(-1, 1)

        def add(total: torch.Tensor, rows: torch.Tensor, tap: int, first: bool) -> None:
            of_channel = rows.view(*factors.shape[1:3], -1)
            for multiple in range(factors.shape[2]):
                begins = first and multiple == 0
                _add(total, of_channel[:, multiple], factors[tap, :, multiple], begins, by_channel)

        sum_taps(gradient, image, plan, layout(plain, BWD_DATA), start, add)

    def backward_weights(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        gradient: torch.Tensor,
        weight_gradient: torch.Tensor,
    ) -> None:
        sum_weights(plan, plain, image, gradient, weight_gradient)


def _add(
    total: torch.Tensor,
    rows: torch.Tensor,
    factor: torch.Tensor,
    first: bool,
    bias: torch.Tensor | None,
) -> None:
    """Add ``rows * factor`` to ``total``. If ``first``, set ``total`` to the product plus the bias."""
    if not first:
        total.addcmul_(rows, factor)
    elif bias is None:
        torch.mul(rows, factor, out=total)
    else:
        torch.addcmul(bias, rows, factor, out=total)


def _by_channel(weight: torch.Tensor, plain: Geometry) -> torch.Tensor:
    """Return the weight as ``(taps, channels, filters / channels, 1)`` in the dtype of the sums."""
    return factors_by_tap(weight, plain.taps).view(plain.taps, plain.channels, -1, 1)
