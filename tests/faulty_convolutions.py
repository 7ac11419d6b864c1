"""Convolutions with planted bugs, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

from faulty_kernels import KernelBug
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
