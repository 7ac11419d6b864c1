"""Convolutions with planted bugs, in this process; and where each bug changes a result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from faulty_kernels import KernelBug, clamped_axis, has_equal_channels, pixels_not_read, reads
from planted_bugs import PlantedBug, problem_with

from rocmprobe.bypass import dispatch, registration
from rocmprobe.model.problems import Problem
from rocmprobe.model.results import DIRECTIONS
from rocmprobe.simulate.kernels import fp32_gradients, fp32_output

#: The sums over which every bug must be found: products in one element of a result.
TERMS = (27, 144, 576, 2304, 4608, 18432)


@contextmanager
def planted(*layers: dispatch.Interceptor) -> Iterator[None]:
    """Let convolutions on this CPU meet ``layers`` below the bypass, where a library would be."""
    for layer in layers:
        registration.add_interceptor(layer, "cpu")
    try:
        yield
    finally:
        for layer in layers:
            registration.remove_interceptor(layer, "cpu")


def changed(change: Any) -> Any:
    """A context in which ``change`` changes every result of a convolution."""

    class Changing(dispatch.Interceptor):
        name = "changing"

        def convolution(self, call: Any, proceed: Any) -> Any:
            return change(proceed(call))

        def convolution_backward(self, call: Any, proceed: Any) -> Any:
            return tuple(each if each is None else change(each) for each in proceed(call))

    return lambda: planted(Changing())


class CorrectKernel(dispatch.Interceptor):
    """Convolutions as a GPU computes them: half precision is accumulated in fp32."""

    name = "kernel"

    def convolution(self, call: Any, proceed: Any) -> Any:
        return fp32_output(call, proceed)

    def convolution_backward(self, call: Any, proceed: Any) -> Any:
        return fp32_gradients(call, proceed)


class FaultyKernel(CorrectKernel):
    """Convolutions as a GPU computes them, with the bug called ``name``."""

    def __init__(self, name: str) -> None:
        self._bug = KernelBug(name)

    def convolution(self, call: Any, proceed: Any) -> Any:
        return self._bug.output(call, lambda each: fp32_output(each, proceed))

    def convolution_backward(self, call: Any, proceed: Any) -> Any:
        return self._bug.gradients(call, DIRECTIONS, lambda each: fp32_gradients(each, proceed))


@dataclass(frozen=True)
class Combination:
    """A bug in one direction of a problem whose sums there have ``terms`` products."""

    bug: PlantedBug
    direction: str
    terms: int
    problem: Problem


def combinations(bug: PlantedBug, sums: tuple[int, ...] = TERMS) -> Iterator[Combination]:
    """Yield ``bug`` in each of its dtypes and directions, over ``sums``."""
    for dtype, direction, terms in product(bug.dtypes, bug.directions, sums):
        yield Combination(bug, direction, terms, problem_with(bug, dtype, direction, terms))


def exists_in(bug: PlantedBug, problem: Problem, direction: str) -> bool:
    """Return True if ``bug`` changes the result of this problem and direction, for operands without zeros."""
    return problem.dtype in bug.dtypes and _NEEDS.get(bug.name, _has_result)(problem, direction)


def _axes(problem: Problem) -> range:
    return range(problem.rank)


def _multiplies(problem: Problem, direction: str) -> bool:
    """Whether anything but padding is multiplied."""
    return all(reads(problem, axis) for axis in _axes(problem))


def _has_result(problem: Problem, direction: str) -> bool:
    return _multiplies(problem, direction) or (problem.bias and direction == "fwd")


def _sums(problem: Problem, direction: str) -> bool:
    """Whether some element sums two products, those with padding left out."""
    if direction == "bwd-weights":
        of_tap = [Counter(tap for _, tap, _ in reads(problem, axis)) for axis in _axes(problem)]
        return problem.batch * prod(max(each.values(), default=0) for each in of_tap) > 1
    # The element is a position where the image is read, or a pixel of the image.
    index = 0 if (direction == "fwd") != problem.transposed else 2
    of_element = [Counter(read[index] for read in reads(problem, axis)) for axis in _axes(problem)]
    channels = problem.terms(direction) // prod(problem.kernel)
    return channels * prod(max(each.values(), default=0) for each in of_element) > 1


def _meets_padding(problem: Problem, direction: str) -> bool:
    clamped = clamped_axis(problem)
    return clamped is not None and all(reads(problem, axis) for axis in _axes(problem) if axis != clamped)


def _dilations_differ(problem: Problem, direction: str) -> bool:
    right = [reads(problem, axis) for axis in _axes(problem)]
    swapped = [reads(problem, axis, problem.dilation[-1 - axis]) for axis in _axes(problem)]
    return right != swapped and (all(right) or all(swapped))


def _transposable(problem: Problem, direction: str) -> bool:
    if has_equal_channels(problem):
        return _multiplies(problem, direction)
    if problem.rank < 2 or problem.kernel[-1] != problem.kernel[-2]:
        return False
    taps = [{tap for _, tap, _ in reads(problem, axis)} for axis in _axes(problem)]
    return all(taps) and (taps[-1] != taps[-2] or len(taps[-1]) > 1)


def _mixed_up(problem: Problem, direction: str) -> bool:
    channels, size = problem.in_channels, problem.input_size
    if direction == "bwd-data":
        channels, size = problem.out_channels, problem.output_size
    return problem.channels_last and channels > 1 and max(size) > 1 and _multiplies(problem, direction)


def _has_gaps(problem: Problem, direction: str) -> bool:
    # Of a transposed convolution that is the forward direction.
    gaps = any(pixels_not_read(problem, axis) for axis in _axes(problem))
    return gaps and direction == ("fwd" if problem.transposed else "bwd-data")


def _bias_gradient(problem: Problem, direction: str) -> bool:
    return problem.bias and direction == "bwd-weights"


_NEEDS: Mapping[str, Callable[[Problem, str], bool]] = {
    "lost-term": _multiplies, "wrong-padding-edge": _meets_padding, "swapped-dilation": _dilations_differ,
    "unwritten-gaps": _has_gaps, "half-accumulation": _sums, "reduced-precision": _multiplies,
    "nan-lane": lambda problem, direction: True, "bias-gradient": _bias_gradient,
    "transposed-weights": _transposable, "mixed-up-layout": _mixed_up,
}  # fmt: skip
