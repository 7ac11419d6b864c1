"""The convolution theorem, for large kernels at stride 1: transforms by torch.fft, products by frequency.

Mathieu, Henaff and LeCun, "Fast training of convolutional networks through FFTs", ICLR 2014. Sums are no
longer plain, so it is never chosen where exactness is required.

Workspace, with S values in a transformed plane of f frequencies: for each of the two operands and the result
the plane S * a and three times its transform 2 * f * a, and for the image the padded window besides.
"""

from __future__ import annotations

from math import ceil, prod

import torch

from rocmprobe.bypass.algorithms.base import (
    BWD_DATA,
    Algorithm,
    Operands,
    Plan,
    accumulation_dtype,
    largest,
)
from rocmprobe.bypass.algorithms.columns import Covered, index
from rocmprobe.bypass.algorithms.gemm import ranges
from rocmprobe.geometry import Geometry

#: Fewer taps than this are never worth a transform.
_LEAST_TAPS = 25


class Fft(Algorithm):
    name = "fft"
    exact = False
    # It enters another library of the vendor's, which on ROCm compiles at run time.
    only_by_name = True

    def plan(self, direction: str, plain: Geometry, operands: Operands, cap: int) -> Plan | None:
        plain_taps = set(plain.stride) == set(plain.dilation) == {1}
        if direction == BWD_DATA or not plain_taps or plain.taps < _LEAST_TAPS:
            return None
        sizes = _sizes(plain)
        plane, frequencies = prod(sizes), prod(sizes[:-1]) * (sizes[-1] // 2 + 1)
        of_weight = plain.filters * plain.channels // plain.groups

        def needed(samples: int) -> int:
            planes = samples * (plain.channels + plain.filters) + of_weight
            padded = samples * plain.channels * prod(plain.span(plain.feature))
            return (planes * (plane + 6 * frequencies) + padded) * operands.wide

        if needed(1) > cap:
            return None
        samples = largest(plain.batch, lambda count: needed(count) <= cap)
        planes = plain.batch * (plain.channels + plain.filters) + of_weight
        flops = 5 * planes * plane * max(1, plane.bit_length()) + 8 * plain.batch * of_weight * frequencies
        return Plan(
            self.name, False, samples, plain.feature, needed(samples), flops,
            planes * 8 * frequencies * operands.wide, ceil(plain.batch / samples) * 12,
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
        dtype = accumulation_dtype(image.dtype)
        sizes = _sizes(plain)
        # (f, groups, C / groups, K / groups)
        of_weight = _spectrum(weight.to(dtype), sizes, plain.groups, weights=True).conj_physical()
        covered = Covered(image, plain, plan.samples, plain.feature)
        box = [(0, size) for size in plain.feature]
        for first, last in ranges(plain.batch, plan.samples):
            of_image = _spectrum(covered.part(first, last, box).to(dtype), sizes, plain.groups)
            results = _plane(torch.matmul(of_image, of_weight), sizes, last - first, plain.filters)
            part = results[index(slice(None), slice(None), *(slice(size) for size in plain.feature))]
            if bias is not None:
                part = part.add_(bias.to(dtype).view(-1, *(1 for _ in sizes)))
            feature[first:last].copy_(part)

    def backward_weights(
        self,
        plan: Plan,
        plain: Geometry,
        image: torch.Tensor,
        gradient: torch.Tensor,
        weight_gradient: torch.Tensor,
    ) -> None:
        dtype = accumulation_dtype(image.dtype)
        sizes = _sizes(plain)
        covered = Covered(image, plain, plan.samples, plain.feature)
        box = [(0, size) for size in plain.feature]
        total = None
        for first, last in ranges(plain.batch, plan.samples):
            of_image = _spectrum(covered.part(first, last, box).to(dtype), sizes, plain.groups)
            of_gradient = _spectrum(gradient[first:last].to(dtype), sizes, plain.groups).conj_physical()
            product = torch.matmul(of_gradient.transpose(-1, -2), of_image)
            total = product if total is None else total.add_(product)
        assert total is not None
        # From (f, groups, K / groups, C / groups), group after group as the weight has them.
        planes = _plane(
            total.flatten(1, 2).unsqueeze(1), sizes, plain.filters, plain.channels // plain.groups
        )
        inner = index(slice(None), slice(None), *(slice(size) for size in plain.kernel))
        weight_gradient.copy_(planes[inner])


def _sizes(plain: Geometry) -> tuple[int, ...]:
    """Sizes of the transformed plane: what the windows cover, rounded up to what transforms well."""
    return tuple(_smooth(span) for span in plain.span(plain.feature))


def _smooth(size: int) -> int:
    """The next even number with no prime factor above 5."""
    size += size % 2
    while True:
        rest = size
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return size
        size += 2


def _spectrum(
    tensor: torch.Tensor, sizes: tuple[int, ...], groups: int, weights: bool = False
) -> torch.Tensor:
    """The transform of ``(n, C, *spatial)`` as ``(f, groups, n, C / groups)``, of a weight
    ``(K, C / groups, *kernel)`` as ``(f, groups, C / groups, K / groups)``."""
    spatial = tuple(range(-len(sizes), 0))
    spectrum: torch.Tensor = torch.fft.rfftn(tensor, s=sizes, dim=spatial)
    flat = spectrum.reshape(*tensor.shape[:2], -1)
    if weights:
        return flat.reshape(groups, -1, *flat.shape[1:]).permute(3, 0, 2, 1)
    return flat.reshape(flat.shape[0], groups, -1, flat.shape[2]).permute(3, 1, 0, 2)


def _plane(spectrum: torch.Tensor, sizes: tuple[int, ...], rows: int, columns: int) -> torch.Tensor:
    """Back from ``(f, groups, rows, columns / groups)`` to ``(rows, columns, *sizes)``."""
    halved = (*sizes[:-1], sizes[-1] // 2 + 1)
    ordered = spectrum.permute(2, 1, 3, 0).reshape(rows, columns, *halved)
    plane: torch.Tensor = torch.fft.irfftn(ordered, s=sizes, dim=tuple(range(-len(sizes), 0)))
    return plane
