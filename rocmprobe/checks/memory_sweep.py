"""Check that searches for the largest batch that fits into memory.

The search ends when the largest batch that fitted and the smallest batch that did not fit differ by 1, or
by at most an eighth. It can end earlier, e.g. if time runs out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable, Optional, TypeVar

from rocmprobe.checks.check import EVERY_DIRECTION, Check
from rocmprobe.checks.tools.compare import check_errors
from rocmprobe.checks.tools.computation import max_ratio
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import DeviceFailure, out_of_memory
from rocmprobe.checks.tools.tensors import Tensors, operands_on_device, problem_operands, run
from rocmprobe.model.numerics import LAYER_LIMITS
from rocmprobe.model.problems import Problem
from rocmprobe.model.results import DIRECTIONS

#: Maximum batch, even for a small problem.
MOST = 1 << 16
#: Time limit of the search, in multiples of the time for one throughput measurement (5 s at level quick).
_SECONDS = 10
#: The search ends when the largest batch that fitted and the smallest batch that failed differ by at most
#: this fraction, or by 1.
_PRECISION = 1 / 8

Limit = Callable[[], AbstractContextManager[None]]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Found:
    """Largest batch size that fitted (or 0) and smallest batch size that did not fit (or None).

    ``ended_by`` is the reason for the end: "memory", "time", or "batch" (maximum batch size).
    """

    largest: int
    refused: Optional[int]
    ended_by: str


def search(first: int, fits: Callable[[int], bool], may_go_on: Callable[[], bool], most: int = MOST) -> Found:
    """Search for the largest batch that fits, up to ``most``, while ``may_go_on`` returns True."""
    largest, refused, batch = 0, None, min(first, most)
    while may_go_on():
        if fits(batch):
            largest = batch
        else:
            refused = batch
        if largest == most:
            return Found(largest, refused, "batch")
        if refused is None:
            batch = min(2 * largest, most)
        elif refused - largest <= max(1, int(_PRECISION * largest)):
            return Found(largest, refused, "memory")
        else:
            batch = (largest + refused) // 2
    return Found(largest, refused, "time")


def memory_sweep(context: CheckContext) -> CheckResult:
    """Find the largest batch for which forward and backward fit into memory.

    Then test that the process still computes correct results. In the result, ``bound_bytes`` is the memory
    that the search was allowed to allocate.
    """
    context.first_call(lambda: _forward_and_backward(replace(context.the_problem, batch=1), context))
    with context.measured():
        bound = context.backend.fillable_bytes(context.device, context.sweep_bytes)
        fits = Fits(context, context.backend.memory_limit(context.device, bound))
        found = search(context.the_problem.batch, fits, fits.may_go_on)
    answer = _in_a_new_thread(
        lambda: check_errors(
            _results_after_search(context), CheckResult(), LAYER_LIMITS[context.dtype_name], max_ratio
        )
    )
    if answer.state == "wrong":
        answer.message = f"after the search for the largest batch: {answer.message}"
    ended_by = "memory" if fits.soured else found.ended_by
    answer.memory.update(bound_bytes=bound, largest_batch=found.largest, ended_by=ended_by)
    if found.refused is not None:
        answer.memory["refused_batch"] = found.refused
    return answer


def _in_a_new_thread(call: Callable[[], Result]) -> Result:
    """Run ``call`` in a new thread, and return the result."""
    # If oneDNN once has no memory for generated code, it never generates code in the same thread again. Its
    # code generator Xbyak stores an error for each thread.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(call).result()


class Fits:
    """Predicate that tries a batch under a memory limit.

    ``soured`` becomes True when oneDNN can no longer generate code in this thread.
    """

    def __init__(self, context: CheckContext, limit: Limit) -> None:
        self._context = context
        self._limit = limit
        self._ends = time.perf_counter() + _SECONDS * context.seconds
        self.soured = False

    def may_go_on(self) -> bool:
        return not self.soured and time.perf_counter() < self._ends

    def __call__(self, batch: int) -> bool:
        try:
            self._try(batch, self._limit)
        except DeviceFailure as failure:
            if not out_of_memory(failure.__cause__) and not self._works_without_limit(batch):
                raise
            return False
        return True

    def _try(self, batch: int, limit: Limit) -> None:
        problem = replace(self._context.the_problem, batch=batch)

        def call() -> None:
            with limit():
                _forward_and_backward(problem, self._context)
                self._context.backend.synchronize(self._context.device)

        # For the vendor library every batch size is a new problem, for which the library can search for
        # kernels and compile them.
        self._context.first_call(call)

    def _works_without_limit(self, batch: int) -> bool:
        """Return True if a batch that failed on a CPU works without the memory limit.

        On a GPU, always return False.
        """
        # If memory is short, oneDNN reports only "could not create a primitive", which can have other causes.
        # PyTorch's GPU allocator always reports lack of memory.
        if self._context.backend.device_type != "cpu":
            return False
        try:
            _in_a_new_thread(lambda: self._try(batch, nullcontext))
        except DeviceFailure:
            return False
        self.soured = True
        return True


def _forward_and_backward(problem: Problem, context: CheckContext) -> None:
    import torch

    def ones(shape: tuple[int, ...]) -> Any:
        tensor = torch.ones(shape, device=context.device, dtype=context.dtype)
        return tensor.contiguous(memory_format=torch.channels_last) if problem.channels_last else tensor

    leaves = [ones(shape).requires_grad_() for shape in (problem.input_shape, problem.weight_shape)]
    bias = ones((problem.out_channels,)) if problem.bias else None
    output = run(problem, "fwd", Tensors(leaves[0], leaves[1], bias, None))["output"]
    torch.autograd.grad(output, leaves, torch.ones_like(output))


def _results_after_search(context: CheckContext) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, result, fp64 reference) for the output and each gradient."""
    problem = context.the_problem
    drawn, placed = problem_operands(problem, context.dtype, context.seed()), operands_on_device(context)
    for direction in DIRECTIONS:
        expected = run(problem, direction, drawn)
        found, _ = context.first_call(partial(run, problem, direction, placed))
        for name, reference in expected.items():
            yield f"{direction}: {name}", found[name], reference


CHECKS = (
    Check(
        "memory-sweep", "conv", "What is the largest batch that fits?", memory_sweep,
        # oneDNN can stop generating code, so the check needs its own process (see _in_a_new_thread).
        EVERY_DIRECTION, exclusive=True, own_process=True, verified=False, seconds=1.5,
    ),
)  # fmt: skip
