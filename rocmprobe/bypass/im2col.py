"""Convolution as columns times weight, and its weight gradient, in chunks of samples and tiles of windows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch

from rocmprobe.bypass.columns import Box, Windows, index
from rocmprobe.bypass.gemm import Buffer, accumulate, as_matrices, matrices_in, multiply, ranges
from rocmprobe.bypass.geometry import Geometry
from rocmprobe.bypass.plan import Plan


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the GEMMs: fp32 for fp16 and bf16."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def weight_matrices(weight: torch.Tensor, plain: Geometry, dtype: torch.dtype) -> torch.Tensor:
    """``(groups, filters / groups, depth)`` in ``dtype``, a copy only where needed."""
    if weight.dtype != dtype:
        weight = weight.to(dtype, memory_format=torch.contiguous_format)
    return weight.reshape(plain.groups, plain.filters // plain.groups, plain.depth)


def flipped_weight_matrices(weight: torch.Tensor, plain: Geometry, dtype: torch.dtype) -> torch.Tensor:
    """The weight matrices of ``plain.flipped()``, ``(groups, channels / groups, -1)``."""
    grouped = weight.view(plain.groups, plain.filters // plain.groups, *weight.shape[1:])
    swapped = grouped.flip(tuple(range(3, grouped.dim()))).transpose(1, 2)
    matrices = weight.new_empty(swapped.shape, dtype=dtype)
    matrices.copy_(swapped)
    return matrices.view(plain.groups, plain.channels // plain.groups, -1)


def forward(
    plain: Geometry,
    plan: Plan,
    image: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None,
    feature: torch.Tensor,
) -> None:
    """Write the convolution of ``image`` into ``feature``.

    ``weight`` holds the matrices ``(groups, filters / groups, depth)`` in the dtype of the GEMMs.
    """
    dtype = weight.dtype
    windows = Windows(image, plain, plan.samples, plan.tile, dtype)
    products = Buffer(image, dtype)
    by_group = None if bias is None else bias.to(dtype).reshape(plain.groups, -1, 1)
    for box, first, last in pieces(plain, plan):
        columns = windows.columns(first, last, box)
        target = inside(feature[first:last], box)
        in_place = as_matrices(target, plain.groups) if last - first == 1 and target.dtype == dtype else None
        if in_place is not None:
            multiply(weight, columns, in_place[0], by_group)
        else:
            channels_first = target.transpose(0, 1)
            result = products.take(channels_first.shape)
            multiply(weight, columns, result.view(*weight.shape[:2], -1), by_group)
            channels_first.copy_(result)


def backward_weights(
    plain: Geometry,
    plan: Plan,
    image: torch.Tensor,
    gradient: torch.Tensor,
    weight_gradient: torch.Tensor,
) -> None:
    """Write the gradient of the weight, for the ``gradient`` of the feature, into ``weight_gradient``."""
    dtype = accumulation_dtype(image.dtype)
    windows = Windows(image, plain, plan.samples, plan.tile, dtype)
    staged = Buffer(gradient, dtype)
    total = weight_total(weight_gradient, plain, dtype)
    for number, (box, first, last) in enumerate(pieces(plain, plan)):
        columns = windows.columns(first, last, box)
        gradients = matrices_in(inside(gradient[first:last], box), plain.groups, staged, dtype)
        accumulate(total, gradients, columns, first=number == 0)
    store_total(total, weight_gradient)


def weight_total(weight_gradient: torch.Tensor, plain: Geometry, dtype: torch.dtype) -> torch.Tensor:
    """Memory for the sum ``(groups, filters / groups, depth)``: the gradient's own where that serves."""
    shape = (plain.groups, plain.filters // plain.groups, plain.depth)
    if weight_gradient.dtype == dtype and weight_gradient.is_contiguous():
        return weight_gradient.view(shape)
    return weight_gradient.new_empty(shape, dtype=dtype)


def store_total(total: torch.Tensor, weight_gradient: torch.Tensor) -> None:
    """Round the sum into the gradient, unless it was gathered there."""
    if total.data_ptr() != weight_gradient.data_ptr():
        weight_gradient.copy_(total.view(weight_gradient.shape))


def pieces(plain: Geometry, plan: Plan) -> Iterator[tuple[Box, int, int]]:
    """The tiles, and for each tile the chunks of samples, as (box of windows, first, last + 1)."""
    for box in product(*(ranges(size, step) for size, step in zip(plain.feature, plan.tile))):
        for first, last in ranges(plain.batch, plan.samples):
            yield box, first, last


def inside(feature: torch.Tensor, box: Box) -> torch.Tensor:
    """The windows of ``feature`` ``(n, K, *feature)`` that lie in ``box``."""
    return feature[index(slice(None), slice(None), *(slice(begin, end) for begin, end in box))]
