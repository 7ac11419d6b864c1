"""Half precision convolution on the CPU with sums in half precision, which is a bug."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Union

import torch
import torch.nn.functional as F

from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall

Call = Union[ConvolutionCall, BackwardCall]


def accumulated(call: Call, direction: str) -> torch.Tensor:
    """Return the result of ``call``, with running sums rounded to half precision after each product.

    The dtype of ``call`` is float16 or bfloat16.
    """
    backward = call if isinstance(call, BackwardCall) else None
    # ``image`` is the tensor that is padded. ``positions`` has one pixel for each place in the image at which
    # the filter is applied.
    image = None if backward is None else backward.grad_output
    positions = call.input
    if not call.transposed:
        image, positions = positions, image
    groups, rank = call.groups, call.weight.dim() - 2
    weight = call.weight.float().reshape(groups, -1, *call.weight.shape[1:])
    if direction == "bwd-weights":
        return _weights(call, _split(image, groups), _split(positions, groups), weight.shape[3:])
    if (direction == "fwd") != call.transposed:
        padded = F.pad(_split(image, groups), _both(call.padding))
        sizes = [
            (size - dilation * (kernel - 1) - 1) // stride + 1
            for size, dilation, kernel, stride in zip(
                padded.shape[3:], call.dilation, weight.shape[3:], call.stride
            )
        ]
        result = _gathered(call, padded, weight, sizes)
    else:
        result = _scattered(call, _split(positions, groups), weight, _image_sizes(call))
    bias = call.bias if isinstance(call, ConvolutionCall) else None
    result = result.flatten(1, 2)
    if bias is not None:
        result = result + bias.float().view(-1, *[1] * rank)
    return result.to(call.input.dtype)


def _split(tensor: Any, groups: int) -> torch.Tensor:
    """Return ``tensor`` in fp32 with the shape (batch, groups, channels per group, *size)."""
    wide: torch.Tensor = tensor.float()
    return wide.reshape(wide.shape[0], groups, -1, *wide.shape[2:])


def _both(padding: tuple[int, ...]) -> list[int]:
    return [pixels for each in reversed(padding) for pixels in (each, each)]


def _windows(call: Call, taps: tuple[int, ...], sizes: Any) -> tuple[slice, ...]:
    """Return one slice per axis. They select the pixels that the tap at ``taps`` reads in a padded image."""
    return tuple(
        slice(tap * dilation, tap * dilation + (size - 1) * stride + 1, stride)
        for tap, dilation, size, stride in zip(taps, call.dilation, sizes, call.stride)
    )


def _gathered(call: Call, padded: torch.Tensor, weight: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    dtype, ones = call.input.dtype, [1] * len(sizes)
    _, rows, columns, *kernel = weight.shape
    total = torch.zeros(padded.shape[0], call.groups, rows, *sizes, dtype=dtype)
    for column, taps in product(range(columns), _taps(kernel)):
        pixels = padded[:, :, column : column + 1][at(_windows(call, taps, sizes))]
        factor = weight[:, :, column][at(taps)].view(1, call.groups, rows, *ones)
        total = torch.addcmul(total.float(), pixels, factor).to(dtype)
    return total.float()


def _image_sizes(call: Call) -> list[int]:
    if isinstance(call, BackwardCall):
        return list(call.input.shape[2:])
    sizes = zip(
        call.input.shape[2:],
        call.weight.shape[2:],
        call.stride,
        call.padding,
        call.dilation,
        call.output_padding,
    )
    return [(i - 1) * s - 2 * p + d * (k - 1) + o + 1 for i, k, s, p, d, o in sizes]


def _scattered(call: Call, positions: torch.Tensor, weight: torch.Tensor, image: list[int]) -> torch.Tensor:
    dtype, sizes = call.input.dtype, positions.shape[3:]
    _, rows, columns, *kernel = weight.shape
    padded = [
        max(size + 2 * padding, (count - 1) * stride + dilation * (taps - 1) + 1)
        for size, padding, count, stride, dilation, taps in zip(
            image, call.padding, sizes, call.stride, call.dilation, kernel
        )
    ]
    total = torch.zeros(positions.shape[0], call.groups, columns, *padded)
    for row, taps in product(range(rows), _taps(kernel)):
        part = total[at(_windows(call, taps, sizes))]
        factor = weight[:, row][at(taps)].view(1, call.groups, columns, *[1] * len(sizes))
        part.addcmul_(positions[:, :, row : row + 1], factor)
        part.copy_(part.to(dtype))
    return total[at(slice(padding, padding + size) for padding, size in zip(call.padding, image))]


def _weights(call: Call, image: torch.Tensor, positions: torch.Tensor, kernel: torch.Size) -> torch.Tensor:
    dtype = call.input.dtype
    padded = F.pad(image, _both(call.padding))
    batch, groups, rows, *sizes = positions.shape
    total = torch.zeros(groups, rows, padded.shape[2], *kernel, dtype=dtype)
    for sample, place in product(range(batch), _taps(sizes)):
        window = [
            slice(position * stride, position * stride + dilation * (taps - 1) + 1, dilation)
            for position, stride, dilation, taps in zip(place, call.stride, call.dilation, kernel)
        ]
        pixels = padded[sample][at(window)].unsqueeze(1)
        factor = positions[sample][at(place)].view(groups, rows, 1, *[1] * len(sizes))
        total = torch.addcmul(total.float(), pixels, factor).to(dtype)
    return total.flatten(0, 1)


def at(place: Iterable[Union[int, slice]]) -> Any:
    """Return an index into the last axes of a tensor, e.g. ``(..., 2, 3)``."""
    return (..., *place)


def _taps(sizes: Iterable[int]) -> Iterator[tuple[int, ...]]:
    return product(*map(range, sizes))
