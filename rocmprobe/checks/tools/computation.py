"""Computation: operands, functions of the operands, and limits for the error."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Callable, Optional

from rocmprobe.model.numerics import LAYER_LIMITS, relative_error

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: Errors are divided by the largest value, but at least by UNIT or by TINY. UNIT is for layers whose
#: gradients nearly cancel (batch norm, training).
UNIT = 1.0
TINY = 1e-30

_UNCHANGED: Mapping[str, float] = {}

Shapes = Mapping[str, tuple[int, ...]]
#: Tensors by name: operands or results.
Named = dict[str, "Tensor"]


@dataclass(frozen=True)
class Computation:
    """Functions that draw operands, compute results, and measure errors.

    - ``draw``: returns operands for a ``dtype`` and a ``seed``
    - ``limits``: limits keyed by result ("" for every result), then by measure
    - ``reference``: computes the expected results in fp64 on the CPU. If None, ``call`` computes them.
    - ``layout``: changes the memory format of operands on the device
    - ``misaligned``: if True, operands on the device begin one element after the start of their memory
    - ``bounds``: the three numbers that ``numerics.error_bound`` returns, keyed by result. ``rounding``
      computes the error bound of each element from them.
    """

    draw: partial[Named]
    call: Callable[..., Named]
    measures: tuple[Callable[..., float], ...]
    limits: Mapping[str, Mapping[str, float]]
    reference: Optional[Callable[..., Named]] = None
    layout: Optional[Callable[[Tensor], Tensor]] = None
    bounds: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    misaligned: bool = False

    def operands(self, dtype: torch.dtype, seed: int) -> Named:
        with one_thread():
            return self.draw(dtype=dtype, seed=seed)

    def placed(self, operands: Named, device: str, dtype: torch.dtype) -> Named:
        """Return the operands on the device, in the computation's memory format."""
        moved = {name: operand.to(device, dtype) for name, operand in operands.items()}
        for change in (self.layout, misaligned if self.misaligned else None):
            moved = {name: change(operand) for name, operand in moved.items()} if change else moved
        return moved

    def expected(self, operands: Named) -> Named:
        return (self.reference or self.call)(**operands)

    def limit(self, measure: str, result: str = "") -> float:
        return self.limits.get(result, self.limits.get("", {}))[measure]


def layer(
    dtype: str,
    draw: partial[Named],
    call: Callable[..., Named],
    least: float = UNIT,
    reference: Optional[Callable[..., Named]] = None,
    limits: Mapping[str, float] = LAYER_LIMITS,
) -> Computation:
    """Return the computation of a layer or operator, with the error limit for ``dtype``."""
    measures = (partial(max_error, least=least),)
    return Computation(draw, call, measures, {"": {"max_error": limits[dtype]}}, reference)


def exact(draw: partial[Named], call: Callable[..., Named]) -> Computation:
    """Return a computation whose results must equal the reference."""
    return Computation(draw, call, (unequal,), {"": {"unequal": 0}})


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit PyTorch to one thread in a ``with`` block or a decorated function."""
    import torch

    # After every small operation, several threads would wait for each other. On a busy machine they would
    # wait most of the time.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def seed_of(text: str) -> int:
    """Return a seed for ``text`` that is the same in every process."""
    return zlib.crc32(text.encode())


def uniform(
    shapes: Shapes,
    dtype: torch.dtype,
    seed: int,
    least: float = -1,
    width: float = 2,
    scales: Mapping[str, float] = _UNCHANGED,
    non_finite: str = "",
) -> Named:
    """Draw numbers between ``least`` and ``least + width``, rounded to ``dtype``, as fp64 on the CPU.

    ``scales`` maps names of operands to factors (powers of two). In the first sample of the operand
    ``non_finite``, the first element is NaN, and the middle element of the last channel is infinite.
    """
    import torch

    rng, drawn = torch.Generator().manual_seed(seed), {}
    for name, shape in shapes.items():
        drawn[name] = torch.rand(shape, generator=rng, dtype=torch.float64) * width + least
    rounded = {name: values.to(dtype).double() * scales.get(name, 1) for name, values in drawn.items()}
    if non_finite:
        sample = rounded[non_finite][0]
        sample[-1].view(-1)[sample[-1].numel() // 2] = float("inf")
        sample.view(-1)[0] = float("nan")
    return rounded


def small_integers(shapes: Shapes, dtype: torch.dtype, seed: int) -> Named:
    """Draw integers from -8 to 8, as fp64 on the CPU. ``dtype`` is ignored."""
    import torch

    rng = torch.Generator().manual_seed(seed)
    return {name: torch.randint(-8, 9, shape, generator=rng).double() for name, shape in shapes.items()}


def integers(
    shapes: Shapes, dtype: torch.dtype, seed: int, largest: int, density: Mapping[str, float]
) -> Named:
    """Draw integers of magnitude 1 to ``largest``, as fp64 on the CPU. ``dtype`` is ignored.

    ``density`` maps an operand's name to the fraction of nonzero elements, by default 1.
    """
    import torch

    rng, drawn = torch.Generator().manual_seed(seed), {}
    for name, shape in shapes.items():
        drawn[name] = whole_numbers(shape, largest, density.get(name, 1.0), rng)
    return drawn


def cancelling(
    shapes: Shapes,
    dtype: torch.dtype,
    seed: int,
    base: int,
    largest: int,
    density: float,
    zero_sum: str,
    along: list[int],
    groups: int = 1,
) -> Named:
    """Draw integers with large products and small sums, as fp64 on the CPU.

    The operand ``zero_sum`` (e.g. "weight") sums to zero along the dimensions ``along``. Dimension 0 of the
    operand, of size n, is first split into two dimensions of sizes ``groups`` and n / ``groups``. ``along``
    contains numbers of dimensions after this split. An operand that is neither the weight, nor the bias,
    nor ``zero_sum`` has values from ``base - 1`` to ``base + 1``.
    """
    import torch

    rng, drawn = torch.Generator().manual_seed(seed), {}
    for name, shape in shapes.items():
        if name in ("weight", "bias", zero_sum):
            drawn[name] = whole_numbers(shape, largest, 1.0, rng)
        else:
            drawn[name] = base + whole_numbers(shape, 1, density, rng)
    grouped = drawn[zero_sum].unflatten(0, (groups, -1))
    drawn[zero_sum] = (grouped - grouped.flip(along)).flatten(0, 1)
    return drawn


def whole_numbers(shape: tuple[int, ...], largest: int, density: float, generator: torch.Generator) -> Tensor:
    """Draw integers of magnitude 1 to ``largest`` in fp64, with a fraction ``1 - density`` set to zero."""
    import torch

    values = torch.empty(shape, dtype=torch.float64).random_(-largest, largest, generator=generator)
    values += values >= 0
    return values if density >= 1 else values * (torch.rand(shape, generator=generator) < density)


def channels_last(tensor: Tensor) -> Tensor:
    """Return a 4-d tensor in channels-last format, and any other tensor unchanged."""
    import torch

    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def with_gaps(tensor: Tensor) -> Tensor:
    """Return the tensor with gaps of NaN between its elements, and a 1-d tensor unchanged."""
    import torch

    return tensor if tensor.dim() == 1 else torch.stack((tensor, tensor * float("nan")), -1)[..., 0]


def misaligned(tensor: Tensor) -> Tensor:
    """Return a copy with the same strides that begins one element after the start of its memory.

    The copy is not aligned to 16 bytes, like many slices of a larger tensor.
    """
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    memory = tensor.new_full((last + 2,), float("nan"))
    return memory.as_strided(tensor.shape, tensor.stride(), 1).copy_(tensor)


def leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_()


def with_gradients(output: Tensor, leaves: Mapping[str, Tensor], grad: Tensor) -> Named:
    """Return ``output`` and the gradients of ``leaves`` by name, for the output's gradient ``grad``."""
    import torch

    gradients = torch.autograd.grad(output, list(leaves.values()), grad)
    named = {f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients)}
    return {"output": output.detach(), **named}


def max_error(result: Tensor, reference: Tensor, least: float) -> float:
    """Return the largest error, divided by the reference's largest value (at least ``least``)."""
    error = (result.cpu().double() - reference).abs().max()
    return float(error / max(float(reference.abs().max()), least))


def max_ratio(result: Tensor, reference: Tensor) -> float:
    """Return the largest error, divided by the reference's largest value."""
    error = (result.cpu().double() - reference).abs().max()
    return relative_error(float(error), float(reference.abs().max()))


def rms_range(result: Tensor, reference: Tensor) -> float:
    """Return the RMS error, divided by the largest absolute value in result and reference."""
    actual = result.cpu().double()
    error = (actual - reference).square().mean().sqrt()
    return relative_error(float(error), float(max(actual.abs().max(), reference.abs().max())))


def rounding(sums: Tensor, reference: Tensor, of_sums: float, of_reference: float, least: float) -> Tensor:
    """Return the largest error that rounding can cause in each element.

    ``sums`` are the results for the operands' absolute values. The last three arguments come from
    ``numerics.error_bound``.
    """
    return of_sums * sums + of_reference * reference.abs() + least


def bound_ratio(result: Tensor, reference: Tensor, bound: Tensor) -> float:
    """Return the largest ratio of an element's error to ``bound``."""
    return float(((result.cpu().double() - reference).abs() / bound).max())


def differing(result: Tensor, reference: Tensor, nearest: bool = False) -> Tensor:
    """Return a mask of the elements that differ from ``reference`` (fp64 on the CPU).

    With ``nearest``, elements are rounded to integers first. Elements whose reference is not exact in the
    result's dtype are ignored.
    """
    actual = result.cpu().double()
    return ((actual.round() if nearest else actual) != reference) & (reference.to(result.dtype) == reference)


def unlike(result: Tensor, reference: Tensor, per_sample: bool) -> int:
    """Count the elements that ``propagates`` does not mark."""
    return int((~propagates(result, reference, per_sample)).sum())


def propagates(result: Tensor, reference: Tensor, per_sample: bool) -> Tensor:
    """Return a mask of the elements that propagate NaN and infinity correctly.

    An element must not be finite if the reference is NaN or infinite. Otherwise it can be NaN, because many
    kernels multiply padding by zero. If ``per_sample``, all elements after the first sample must be finite.
    """
    finite = result.cpu().isfinite()
    correct = ~finite | reference.isfinite()
    if per_sample:
        correct[1:] = finite[1:]
    return correct


def unequal(result: Tensor, reference: Tensor, nearest: bool = False) -> int:
    """Count the elements that ``differing`` marks."""
    return int(differing(result, reference, nearest).sum())
