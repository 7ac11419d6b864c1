"""Family of kernels for depthwise convolution and convolution in small groups.

The kernels support all three directions, and tensors of any strides. Tensors of more than 2^31 bytes need
several launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, prod
from typing import Optional

from rocmprobe.geometry import BWD_WEIGHTS, FWD, Geometry
from rocmprobe.kernels.exact import channels_last, contiguous, shapes
from rocmprobe.kernels.families import reduction
from rocmprobe.kernels.families.extents import (
    GRID,
    ITEM_BYTES,
    REACH,
    Strides,
    addressable,
    padded,
    sample_limit,
    span,
)
from rocmprobe.kernels.families.family import Option
from rocmprobe.kernels.families.gather import gathers
from rocmprobe.kernels.families.grouped_gather import (
    GroupedGatherArguments,
    GroupedGatherPhase,
    launch_gathers,
)
from rocmprobe.kernels.families.grouped_tiles import LaunchWithCost, SideStrides
from rocmprobe.kernels.families.grouped_weights import GroupedWeightsArguments, launch_weights
from rocmprobe.kernels.launches import Launch, Pointer

SOURCES = ("grouped.hip",)
STRUCTURES = (GroupedGatherPhase, GroupedGatherArguments, GroupedWeightsArguments)
VARIANTS = ("staged", "direct")

#: ``gemm_share`` of each variant. The values are estimates, not measured. They are low because a kernel reads
#: LDS or a cache for each product.
_GEMM_SHARE = {"staged": 0.25, "direct": 0.1}
#: Maximum number of channels and of filters in a group.
_LARGEST_GROUP = 8


def options(direction: str, plain: Geometry, dtype: str, cap: int, every: bool = False) -> list[Option]:
    """Return the kernels with at most ``cap`` bytes of workspace, the fastest by estimate first.

    ``every`` has no effect. The workspace is enough for contiguous and channels-last tensors.
    """
    item = ITEM_BYTES[dtype]
    found = []
    for variant in VARIANTS:
        first, last = (
            _launches(direction, plain, dtype, variant, *_dense(plain, layout), cap)
            for layout in (False, True)
        )
        if first is None or last is None:
            continue
        if variant == "staged" and not any(each.staged for each in first):
            continue
        sums = [_sum_splits(each) for each in (first, last)] if direction == BWD_WEIGHTS else [0]
        workspace = reduction.workspace_bytes(shapes(plain)["weight"], max(sums))
        moved = sum(each.moved_bytes for each in first)
        if sums[0]:
            moved += workspace + plain.filters * plain.depth * item
        flops = 2 * plain.batch * plain.filters * plain.depth * prod(plain.feature)
        count = len(first) + any(sums)
        share = _GEMM_SHARE[variant]
        cost = sum(each.cost for each in first)
        found.append((cost, Option(variant, workspace, flops, moved, count, share)))
    return [option for _, option in sorted(found, key=lambda each: each[0])]


def prepare(
    direction: str,
    plain: Geometry,
    dtype: str,
    variant: str,
    *,
    image: Strides,
    weight: Strides,
    feature: Strides,
    has_bias: bool,
    cap: int,
) -> Optional[tuple[Launch, ...]]:
    """Return the launches of the kernel ``variant``, or None (see ``Family.prepare``).

    Groups can have at most 8 channels and 8 filters. The bias is contiguous.
    """
    counted = _launches(direction, plain, dtype, variant, image, weight, feature, cap)
    if counted is None:
        return None
    launches = tuple(each.launch for each in counted)
    if direction == BWD_WEIGHTS:
        splits = _sum_splits(counted)
        strides = (weight.outer, weight.inner, *weight.axes)
        summed = [reduction.launch(shapes(plain)["weight"], strides, splits)] if splits else []
        return (*launches, *summed)
    if has_bias:
        return tuple(replace(each, pointers=(*each.pointers, Pointer("bias", "bias"))) for each in launches)
    return launches


def _sum_splits(launches: Sequence[LaunchWithCost]) -> int:
    """Return the number of partial sums of bwd-weights, or 0 if a launch writes the gradient directly."""
    return sum(each.launch.arguments.splits for each in launches if each.launch.arguments.is_partial)


def _dense(plain: Geometry, last: bool) -> tuple[Strides, Strides, Strides]:
    order = channels_last if last else contiguous
    image, weight, feature = (Strides.of(order(shape)) for shape in shapes(plain).values())
    return image, weight, feature


def _launches(
    direction: str,
    plain: Geometry,
    dtype: str,
    variant: str,
    image_strides: Strides,
    weight_strides: Strides,
    feature_strides: Strides,
    cap: int,
) -> Optional[list[LaunchWithCost]]:
    """Return all launches except the reduction of bwd-weights, or None for an unsupported convolution."""
    inputs, outputs = plain.channels // plain.groups, plain.filters // plain.groups
    if max(inputs, outputs) > _LARGEST_GROUP or len(plain.kernel) > 3:
        return None
    item = ITEM_BYTES[dtype]
    plain = padded(plain)
    sides = [each.padded() for each in (image_strides, weight_strides, feature_strides)]
    samples = min(addressable(plain, item, sides[0], sides[2]), GRID)
    if not samples or not sample_limit(sides[1], inputs, plain.kernel, item):
        return None
    if span(sides[1], plain.filters, inputs, plain.kernel) * item > REACH:
        return None
    image, weight, feature = (
        tuple(stride * item for stride in (each.outer, each.inner, *each.axes)) for each in sides
    )
    staged = variant == "staged"
    parts = ceil(plain.batch / samples)
    splits = cap // (4 * plain.filters * plain.depth * parts)
    if direction == BWD_WEIGHTS and not splits and parts > 1:
        return None
    found: list[LaunchWithCost] = []
    for first in range(0, plain.batch, samples):
        part = replace(plain, batch=min(samples, plain.batch - first))
        moves = {"image": first * image[0], "feature": first * feature[0]}
        if direction == BWD_WEIGHTS:
            before = sum(each.launch.arguments.splits for each in found)
            given = SideStrides(image, weight, feature)
            found.append(launch_weights(part, given, moves, item, staged, before, splits, parts == 1))
            continue
        given = (
            SideStrides(image, weight, feature) if direction == FWD else SideStrides(feature, weight, image)
        )
        phases = [axes for axes in gathers(direction, part) if all(axis.count for axis in axes)]
        found += launch_gathers(direction, part, phases, given, moves, item, staged)
    return None if any(max(each.launch.grid[1:]) > GRID for each in found) else found
