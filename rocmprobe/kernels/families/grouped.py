"""Family of kernels for depthwise convolution and convolution in small groups.

The kernels support all three directions, and tensors of any strides. Tensors of more than 2^31 bytes need
several launches. The name of a variant has the number of partial sums per sum, e.g. ``staged/8``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, prod
from typing import Optional

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry
from rocmprobe.kernels.exact import contiguous, shapes
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
from rocmprobe.kernels.families.gather import Axis, gathers
from rocmprobe.kernels.families.grouped_tiles import (
    BLOCK,
    THREADS,
    TILE_FIELDS,
    along_channels,
    cheapest_tile,
    tile_fields,
)
from rocmprobe.kernels.launches import Launch, Pointer

SOURCES = ("grouped.hip",)
#: ``gemm_share`` of each variant. The values are estimates, not measured. They are low because a kernel reads
#: LDS or a cache for each product.
_GEMM_SHARE = {"staged": 0.25, "direct": 0.1}
_DIRECT = "grouped_gather_direct"
#: Maximum number of channels and of filters in a group.
_LARGEST_GROUP = 8
#: Maximum number of phases (see ``gather.py``) in a launch. A stride of 2 in three dimensions has this many.
_PHASES = 8
#: Number of blocks that keep a compute unit busy, and minimum number of units per block. A unit is one tile
#: of one sample.
_BLOCKS_PER_UNIT, _LEAST_UNITS = 4, 4

_Two, _Three = ctypes.c_int32 * 2, ctypes.c_uint32 * 3


class GroupedGatherPhase(ctypes.Structure):
    """One phase of a launch (see ``gather.py``).

    ``size`` is the source's size in pixels. ``step`` has the source's strides in bytes. The phase writes
    ``count`` positions, the first at byte ``target_first``. ``blocks`` has the number of blocks in x and y.
    """

    _fields_ = [
        ("blocks", ctypes.c_uint32 * 2),
        *TILE_FIELDS,
        ("weights_at", ctypes.c_int32),
        *((name, ctypes.c_uint32) for name in ("weight_group_step", "weight_output_step")),
        *((name, ctypes.c_uint32) for name in ("weight_channel_step", "weight_first")),
        ("weight_step", _Three),
        *((name, ctypes.c_uint32) for name in ("target_sample_step", "target_group_step")),
        *((name, ctypes.c_uint32) for name in ("target_output_step", "target_first")),
        ("target_step", _Three),
    ]


class GroupedGatherArguments(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("source", "weight", "bias", "target")),
        ("phase_count", ctypes.c_int32),
        ("phases", GroupedGatherPhase * _PHASES),
    ]


class GroupedWeightsArguments(ctypes.Structure):
    """Arguments of a launch for bwd-weights. ``source`` is the image.

    ``chunks`` is the number of blocks of taps in y and in x. If ``is_partial`` is 1, ``target`` receives
    float32 partial sums ``[splits][values]``, else the gradient. Steps of ``target`` are in bytes.
    """

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("source", "feature", "target")),
        *TILE_FIELDS,
        ("chunks", _Two),
        *((name, ctypes.c_int32) for name in ("units", "splits", "is_partial")),
        *((name, ctypes.c_uint32) for name in ("feature_sample_step", "feature_group_step")),
        ("feature_output_step", ctypes.c_uint32),
        ("feature_step", _Three),
        *((name, ctypes.c_uint32) for name in ("target_row", "target_channel", "target_split")),
        ("target_tap", _Three),
    ]


STRUCTURES = (GroupedGatherPhase, GroupedGatherArguments, GroupedWeightsArguments)


def options(
    direction: str, plain: Geometry, dtype: str, cap: int, compute_units: int, every: bool = False
) -> list[Option]:
    """Return the kernel for a convolution: staged if a tile fits into LDS, else direct.

    If ``every`` is True, return both, and bwd-weights with and without a split.
    """
    item, tensors = ITEM_BYTES[dtype], shapes(plain)
    dense = [Strides.of(contiguous(shape)) for shape in tensors.values()]
    found = []
    for kind, share in _GEMM_SHARE.items():
        whole = _launches(direction, plain, dtype, kind, 1, *dense)
        if whole is None:
            continue
        ways = [1]
        if direction == BWD_WEIGHTS:
            blocks, units = whole[0].grid[0] * whole[0].grid[2], whole[0].arguments.units
            within = cap // reduction.workspace_bytes(tensors["weight"], len(whole))
            wanted = ceil(_BLOCKS_PER_UNIT * compute_units / blocks)
            ways = [1, 4] if every else [max(1, min(wanted, units // _LEAST_UNITS, within, GRID))]
        for splits in ways:
            parts = splits * len(whole) if direction == BWD_WEIGHTS and (splits > 1 or len(whole) > 1) else 0
            workspace = reduction.workspace_bytes(tensors["weight"], parts)
            option = Option(
                variant=f"{kind}/{splits}",
                kernels=frozenset({*(each.kernel for each in whole), *([reduction.KERNEL] if parts else ())}),
                workspace_bytes=workspace,
                flops=2 * plain.batch * plain.filters * plain.depth * prod(plain.feature),
                moved_bytes=item * sum(map(prod, tensors.values())) + 2 * workspace,
                launches=len(whole) + (parts > 0),
                gemm_share=share,
            )
            if workspace <= cap:
                found.append(option)
    return found if every else found[:1]


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
    kind, _, splits = variant.partition("/")
    launches = _launches(direction, plain, dtype, kind, int(splits), image, weight, feature)
    if launches is None:
        return None
    if direction != BWD_WEIGHTS:
        bias = (Pointer("bias", "bias"),) if has_bias else ()
        return tuple(replace(each, pointers=(*each.pointers, *bias)) for each in launches)
    parts, shape = _parts(launches), shapes(plain)["weight"]
    if reduction.workspace_bytes(shape, parts) > cap:
        return None
    steps = (weight.outer, weight.inner, *weight.axes)
    return (*launches, *([reduction.launch(shape, steps, parts)] if parts else ()))


def _parts(launches: Sequence[Launch]) -> int:
    """Return the number of partial sums of bwd-weights, or 0 if a launch writes the gradient directly."""
    return sum(each.arguments.splits for each in launches if each.arguments.is_partial)


def _launches(
    direction: str, plain: Geometry, dtype: str, kind: str, splits: int,
    image_strides: Strides, weight_strides: Strides, feature_strides: Strides,
) -> Optional[list[Launch]]:  # fmt: skip
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
    found: list[Launch] = []
    for first in range(0, plain.batch, samples):
        part = replace(plain, batch=min(samples, plain.batch - first))
        starts = {"image": first * image[0], "feature": first * feature[0]}
        if direction == BWD_WEIGHTS:
            launches = _weights(
                part, image, weight, feature, starts, item, kind, splits, _parts(found), samples < plain.batch
            )
        elif direction == BWD_DATA:
            launches = _gathers(direction, part, feature, weight, image, starts, item, kind)
        else:
            launches = _gathers(direction, part, image, weight, feature, starts, item, kind)
        if launches is None or any(max(each.grid[1:]) > GRID for each in launches):
            return None
        found += launches
    return found


def _gathers(
    direction: str, plain: Geometry, source: Sequence[int], weight: Sequence[int], target: Sequence[int],
    starts: Mapping[str, int], item: int, kind: str,
) -> Optional[list[Launch]]:  # fmt: skip
    """Return the launches of fwd or bwd-data. ``starts`` has the byte offsets of "image" and "feature"."""
    inputs, outputs = plain.channels // plain.groups, plain.filters // plain.groups
    if direction == BWD_DATA:
        inputs, outputs = outputs, inputs
    at_once = 1 if outputs == 1 or kind == "direct" else 4
    phases = []
    for found in gathers(direction, plain):
        if all(axis.count for axis in found):
            axes = tuple(axis.ascending() for axis in found)
            phase = _phase(direction, plain, axes, source, weight, target, item, kind == "staged", at_once)
            if phase is None:
                return None
            phases.append(phase)
    names = ("feature", "image") if direction == BWD_DATA else ("image", "feature")
    pointers = (
        Pointer("source", names[0], starts[names[0]]),
        Pointer("weight", "weight"),
        Pointer("target", names[1], starts[names[1]]),
    )
    launches = []
    for first in range(0, len(phases), _PHASES):
        part = phases[first : first + _PHASES]
        arguments = GroupedGatherArguments(
            phase_count=len(part), phases=(GroupedGatherPhase * _PHASES)(*part)
        )
        blocks = [phase.blocks for phase in part]
        grid = (sum(x for x, _ in blocks), max(y for _, y in blocks), plain.batch)
        name = _DIRECT if kind == "direct" else f"grouped_gather_{at_once}x4"
        launches.append(Launch(name, grid, THREADS, arguments, pointers))
    return launches


def _phase(
    direction: str, plain: Geometry, axes: tuple[Axis, ...], source: Sequence[int], weight: Sequence[int],
    target: Sequence[int], item: int, staged: bool, at_once: int,
) -> Optional[GroupedGatherPhase]:  # fmt: skip
    inputs, outputs = plain.channels // plain.groups, plain.filters // plain.groups
    weight_group, weight_output, weight_input = outputs * weight[0], weight[0], weight[1]
    sizes = plain.image
    if direction == BWD_DATA:
        inputs, outputs, weight_output, weight_input = outputs, inputs, weight_input, weight_output
        sizes = plain.feature
    fast = along_channels(source, target)
    weights = max(1, axes[1].taps * axes[2].taps) * at_once
    tile = cheapest_tile(axes, plain.groups, fast, item, at_once, staged, weights)
    if tile is None:
        return None
    fields = tile_fields(tile, axes, sizes, plain.groups, inputs, source, staged)
    steps = weight[2:]
    return GroupedGatherPhase(
        blocks=(ctypes.c_uint32 * 2)(prod(fields["tiles"]), fields["group_tiles"] * ceil(outputs / at_once)),
        **fields,
        outputs=outputs,
        weights_at=fields["words"] // 4 * 4 + 4,
        weight_group_step=weight_group,
        weight_output_step=weight_output,
        weight_channel_step=weight_input,
        weight_first=sum(axis.tap_first * step for axis, step in zip(axes, steps) if axis.taps),
        weight_step=_Three(*(axis.tap_step * step % (1 << 32) for axis, step in zip(axes, steps))),
        target_sample_step=target[0],
        target_group_step=outputs * target[1],
        target_output_step=target[1],
        target_first=sum(axis.write_first * step for axis, step in zip(axes, target[2:])),
        target_step=_Three(*(axis.write_step * step for axis, step in zip(axes, target[2:]))),
    )


def _weights(
    plain: Geometry, image: Sequence[int], weight: Sequence[int], feature: Sequence[int],
    starts: Mapping[str, int], item: int, kind: str, splits: int, before: int, several: bool,
) -> Optional[list[Launch]]:  # fmt: skip
    """Return the launch of bwd-weights for some of the samples, as a list.

    The launch splits each sum into at most ``splits`` partial sums. ``before`` is the number of partial sums
    of earlier launches. ``several`` is True if other launches have other samples.
    """
    (axes,) = gathers(FWD, plain)
    # A block reads what BLOCK rows and columns of taps need.
    staged_axes = (axes[0], *(replace(axis, taps=BLOCK if axis.taps > 1 else 1) for axis in axes[1:]))
    inputs, outputs = plain.channels // plain.groups, plain.filters // plain.groups
    at_once = 1 if outputs == 1 else 4
    fast = along_channels(image, feature)
    tile = None
    if kind == "staged":
        tile = cheapest_tile(staged_axes, plain.groups, fast, item, at_once, True, 0)
    if tile is None:
        return None
    fields = tile_fields(tile, staged_axes, plain.image, plain.groups, inputs, image, True)
    fields["taps"] = (ctypes.c_int32 * 3)(*plain.kernel)
    chunks = [ceil(taps / BLOCK) for taps in plain.kernel[1:]]
    units = plain.batch * prod(fields["tiles"])
    splits = min(splits, units)
    is_partial = several or splits > 1
    partial_steps = [4 * step for step in contiguous((plain.filters, inputs, *plain.kernel))]
    row, channel, *taps = partial_steps if is_partial else weight
    values = plain.filters * inputs * plain.taps
    arguments = GroupedWeightsArguments(
        **fields,
        outputs=outputs,
        chunks=_Two(*chunks),
        units=units,
        splits=splits,
        is_partial=is_partial,
        feature_sample_step=feature[0],
        feature_group_step=outputs * feature[1],
        feature_output_step=feature[1],
        feature_step=_Three(*feature[2:]),
        target_row=row,
        target_channel=channel,
        target_split=4 * values,
        target_tap=_Three(*taps),
    )
    pointers = (
        Pointer("source", "image", starts["image"]),
        Pointer("feature", "feature", starts["feature"]),
        Pointer("target", "workspace", 4 * before * values) if is_partial else Pointer("target", "weight"),
    )
    depth = prod(chunks) * plain.kernel[0] * inputs * ceil(outputs / at_once)
    grid = (fields["group_tiles"], splits, depth)
    return [Launch(f"grouped_weights_{at_once}x9", grid, THREADS, arguments, pointers)]
