"""Algorithm that adds one matrix product for each kernel tap, on shifted views of long rows.

Source: Anderson, Vasudevan, Keane and Gregg, "Low-memory GEMM-based convolution algorithms for deep neural
networks", 2017 (kn2row).

Workspace (symbols: see ``base``), where "positions" is the number of elements of a padded sample in one row:

- long rows of the source: n * positions * a for each channel and each phase of the source
- sums of the result: n * positions * a for each channel of the result
- copy of the weight: w * a
- copy of the bias: max(C, K) * a

bwd-weights needs rows for the gradient instead of the sums. With several groups, bwd-weights can also need
shifted copies of the rows of one phase. The number of copies is at most the size of the kernel's last
dimension.
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
    largest,
    weight_traffic,
)
from rocmprobe.bypass.algorithms.gemm import add_product, multiply
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
_CPU_BYTES = 1 << 22


class Shift(Algorithm):
    name = "shift"

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        # With one channel in each group, the matrices are too small for fast products.
        if plain.groups == plain.channels > 1 or prod(plain.stride) > MOST_PHASES:
            return None
        form = layout(plain, direction)
        source, result = plain.channels, plain.filters
        if direction == BWD_DATA:
            source, result = result, source

        def needed(samples: int) -> int:
            sums = result * samples * form.positions
            rows = form.row_elements(source, samples) + sums
            if direction == BWD_WEIGHTS:
                rows = weight_elements(plain, samples)
            vectors = plain.filters * plain.depth + max(plain.filters, plain.channels)
            return (rows + vectors) * operands.wide

        if needed(1) > cap:
            return None
        most, written = plain.batch, plain.taps * result
        if operands.device_type == "cpu" and plain.groups > 1:
            # Choose small chunks, so that the sums stay in the caches.
            most, written = largest(plain.batch, lambda count: needed(count) <= _CPU_BYTES), result
        samples = largest(most, lambda count: needed(count) <= cap)
        positions = plain.batch * form.positions
        flops = 2 * plain.filters * plain.depth * positions
        moved = 2 * (written + source * len(form.sources)) * positions * operands.wide
        if direction == BWD_WEIGHTS and plain.groups > 1:
            moved = 2 * plain.batch * weight_elements(plain, 1) * operands.wide
        chunks = ceil(plain.batch / samples)
        moved += weight_traffic(plain, operands, direction, chunks + 3)
        launches = chunks * (1 + len(form.sources) + len(form.results) + plain.taps)
        return Plan(self.name, False, samples, plain.feature, needed(samples), flops, moved, launches)

    def forward(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        feature: torch.Tensor,
    ) -> None:
        _products(plan, plain, FWD, image, _by_group(weight, plain), bias, feature)

    def backward_data(
        self,
        plan: Plan,
        plain: Geometry,
        gradient: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        image: torch.Tensor,
    ) -> None:
        factors = _by_group(weight, plain).transpose(2, 3)
        _products(plan, plain, BWD_DATA, gradient, factors, bias, image)

    def backward_weights(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        gradient: torch.Tensor,
        weight_gradient: torch.Tensor,
    ) -> None:
        sum_weights(plan, plain, image, gradient, weight_gradient)


def _products(
    plan: Plan,
    plain: Geometry,
    direction: str,
    source: torch.Tensor,
    factors: torch.Tensor,
    bias: torch.Tensor | None,
    result: torch.Tensor,
) -> None:
    """Sum ``factors[tap] @ shifted rows`` over all taps, plus ``bias``, and write the sums into ``result``.

    ``factors`` has the shape ``(taps, groups, outputs, inputs)``.
    """
    groups, outputs, inputs = factors.shape[1:]
    start = None if bias is None else bias.to(factors.dtype)
    by_group = None if start is None else start.view(groups, outputs, 1)

    def add(total: torch.Tensor, rows: torch.Tensor, tap: int, first: bool) -> None:
        sums, view = total.view(groups, outputs, -1), rows.view(groups, inputs, -1)
        if first:
            multiply(factors[tap], view, sums, by_group)
        else:
            add_product(sums, factors[tap], view)

    sum_taps(source, result, plan, layout(plain, direction), start, add)


def _by_group(weight: torch.Tensor, plain: Geometry) -> torch.Tensor:
    """Return the weight as ``(taps, groups, filters / groups, channels / groups)`` in the products' dtype."""
    groups = plain.groups
    return factors_by_tap(weight, plain.taps).view(
        plain.taps, groups, plain.filters // groups, plain.channels // groups
    )
