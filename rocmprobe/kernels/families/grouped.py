"""Family of kernels for depthwise convolution and convolution in small groups.

The kernels support all three directions, and tensors of any strides up to 2^31 bytes. The name of a variant
has the number of partial sums per sum, e.g. ``staged/8``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from math import ceil, prod
from typing import Optional

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry
from rocmprobe.kernels.exact import contiguous, shapes
from rocmprobe.kernels.families import reduction
from rocmprobe.kernels.families.extents import GRID, ITEM_BYTES, Divisor, Strides, addressable, padded
from rocmprobe.kernels.families.family import Option
from rocmprobe.kernels.families.gather import Axis, gathers
from rocmprobe.kernels.families.grouped_tiles import (
    BLOCK,
    THREADS,
    TILE_FIELDS,
    along_channels,
    cheapest_tile,
    tile_count,
    tile_fields,
)
from rocmprobe.kernels.launches import Launch, Pointer, fields

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


class GroupedGatherPhase(ctypes.Structure):
    """One phase of a launch (see ``gather.py``).

    ``size`` is the source's size in pixels. ``step`` has the source's strides in bytes. The phase writes
    ``count`` positions, the first at byte ``target_first``. ``blocks`` has the number of blocks in x and y.
    """

    _fields_ = [
        ("blocks", ctypes.c_uint32 * 2),
        *TILE_FIELDS,
        ("taps_x", Divisor),
        ("weights_at", ctypes.c_int32),
        *fields(ctypes.c_uint32, "weight_group_step", "weight_output_step", "weight_channel_step"),
        *fields(ctypes.c_uint32, "weight_first", "target_sample_step", "target_group_step"),
        *fields(ctypes.c_uint32, "target_output_step", "target_first"),
        *fields(ctypes.c_uint32 * 3, "weight_step", "target_step"),
    ]


class GroupedGatherArguments(ctypes.Structure):
    _fields_ = [
        *fields(ctypes.c_void_p, "source", "weight", "bias", "target"),
        ("phase_count", ctypes.c_int32),
        ("phases", GroupedGatherPhase * _PHASES),
    ]


class GroupedWeightsArguments(ctypes.Structure):
    """Arguments of a launch for bwd-weights. ``source`` is the image.

    ``chunks`` has the number of blocks of taps in y and in x, of taps in z, and of channels. If
    ``is_partial`` is 1, ``target`` receives float32 partial sums ``[splits][values]``, else the gradient.
    Steps of ``target`` are in bytes.
    """

    _fields_ = [
        *fields(ctypes.c_void_p, "source", "feature", "target"),
        *TILE_FIELDS,
        ("chunks", Divisor * 4),
        *fields(ctypes.c_int32, "units", "splits", "is_partial"),
        *fields(ctypes.c_uint32, "feature_sample_step", "feature_group_step", "feature_output_step"),
        *fields(ctypes.c_uint32, "target_row", "target_channel", "target_split"),
        *fields(ctypes.c_uint32 * 3, "feature_step", "target_tap"),
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
        launches = _launches(direction, plain, dtype, kind, 1, *dense)
        if launches is None:
            continue
        ways = [1]
        if direction == BWD_WEIGHTS:
            blocks, units = launches[0].grid[0] * launches[0].grid[2], launches[0].arguments.units
            within = cap // reduction.workspace_bytes(tensors["weight"], 1)
            wanted = ceil(_BLOCKS_PER_UNIT * compute_units / blocks)
            ways = [1, 4] if every else [max(1, min(wanted, units // _LEAST_UNITS, within, GRID))]
        for splits in ways:
            workspace = reduction.workspace_bytes(tensors["weight"], splits) if splits > 1 else 0
            names = {*(each.kernel for each in launches), *([reduction.KERNEL] if splits > 1 else ())}
            option = Option(
                variant=f"{kind}/{splits}",
                kernels=frozenset(names),
                workspace_bytes=workspace,
                flops=2 * plain.batch * plain.filters * plain.depth * prod(plain.feature),
                moved_bytes=item * sum(map(prod, tensors.values())) + 2 * workspace,
                launches=len(launches) + (splits > 1),
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
    arguments, shape = launches[0].arguments, shapes(plain)["weight"]
    if not arguments.is_partial:
        return tuple(launches)
    if reduction.workspace_bytes(shape, arguments.splits) > cap:
        return None
    steps = (weight.outer, weight.inner, *weight.axes)
    return (*launches, reduction.launch(shape, steps, arguments.splits))


def _launches(
    direction: str, plain: Geometry, dtype: str, kind: str, splits: int,
    image_strides: Strides, weight_strides: Strides, feature_strides: Strides,
) -> Optional[list[Launch]]:  # fmt: skip
    """Return all launches except the reduction of bwd-weights, or None for an unsupported convolution."""
    item = ITEM_BYTES[dtype]
    if max(plain.channels, plain.filters) // plain.groups > _LARGEST_GROUP or len(plain.kernel) > 3:
        return None
    if not addressable(plain, item, image_strides, weight_strides, feature_strides) or plain.batch > GRID:
        return None
    plain = padded(plain)
    image, weight, feature = (
        tuple(stride * item for stride in (each.outer, each.inner, *each.axes))
        for each in (strides.padded() for strides in (image_strides, weight_strides, feature_strides))
    )
    if direction == BWD_WEIGHTS:
        launches = _weights(plain, image, weight, feature, item, kind, splits)
    elif direction == BWD_DATA:
        launches = _gathers(direction, plain, feature, weight, image, item, kind)
    else:
        launches = _gathers(direction, plain, image, weight, feature, item, kind)
    if launches is None or any(max(each.grid[1:]) > GRID for each in launches):
        return None
    return launches


def _gathers(
    direction: str, plain: Geometry, source: Sequence[int], weight: Sequence[int], target: Sequence[int],
    item: int, kind: str,
) -> Optional[list[Launch]]:  # fmt: skip
    """Return the launches of fwd or bwd-data."""
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
        Pointer("source", names[0]), Pointer("weight", "weight"), Pointer("target", names[1]),
    )  # fmt: skip
    launches = []
    for first in range(0, len(phases), _PHASES):
        part = phases[first : first + _PHASES]
        arguments = GroupedGatherArguments(phase_count=len(part), phases=tuple(part))
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
    tile_values = tile_fields(tile, axes, sizes, plain.groups, inputs, source)
    words = tile_values["staged_height"].value * tile_values["staged_width"] << tile.group_bits
    steps = weight[2:]
    return GroupedGatherPhase(
        blocks=(tile_count(tile_values), tile_values["group_tiles"].value * ceil(outputs / at_once)),
        **tile_values,
        outputs=outputs,
        taps_x=Divisor.of(max(1, axes[2].taps)),
        weights_at=words // 4 * 4 + 4,
        weight_group_step=weight_group,
        weight_output_step=weight_output,
        weight_channel_step=weight_input,
        weight_first=sum(axis.tap_first * step for axis, step in zip(axes, steps) if axis.taps),
        weight_step=tuple(axis.tap_step * step % (1 << 32) for axis, step in zip(axes, steps)),
        target_sample_step=target[0],
        target_group_step=outputs * target[1],
        target_output_step=target[1],
        target_first=sum(axis.write_first * step for axis, step in zip(axes, target[2:])),
        target_step=tuple(axis.write_step * step for axis, step in zip(axes, target[2:])),
    )


def _weights(
    plain: Geometry, image: Sequence[int], weight: Sequence[int], feature: Sequence[int], item: int,
    kind: str, splits: int,
) -> Optional[list[Launch]]:  # fmt: skip
    """Return the launch of bwd-weights, as a list. It splits each sum into at most ``splits`` parts."""
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
    tile_values = tile_fields(tile, staged_axes, plain.image, plain.groups, inputs, image)
    tile_values["taps"] = plain.kernel
    chunks = (*(ceil(taps / BLOCK) for taps in plain.kernel[1:]), plain.kernel[0], inputs)
    units = plain.batch * tile_count(tile_values)
    splits = min(splits, units)
    is_partial = splits > 1
    partial_steps = [4 * step for step in contiguous((plain.filters, inputs, *plain.kernel))]
    row, channel, *taps = partial_steps if is_partial else weight
    arguments = GroupedWeightsArguments(
        **tile_values,
        outputs=outputs,
        chunks=tuple(map(Divisor.of, chunks)),
        units=units,
        splits=splits,
        is_partial=is_partial,
        feature_sample_step=feature[0],
        feature_group_step=outputs * feature[1],
        feature_output_step=feature[1],
        feature_step=feature[2:],
        target_row=row,
        target_channel=channel,
        target_split=4 * plain.filters * inputs * plain.taps,
        target_tap=tuple(taps),
    )
    pointers = (
        Pointer("source", "image"), Pointer("feature", "feature"),
        Pointer("target", "workspace" if is_partial else "weight"),
    )  # fmt: skip
    grid = (tile_values["group_tiles"].value, splits, prod(chunks) * ceil(outputs / at_once))
    return [Launch(f"grouped_weights_{at_once}x9", grid, THREADS, arguments, pointers)]
