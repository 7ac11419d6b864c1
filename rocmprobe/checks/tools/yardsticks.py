"""Yardsticks: calls whose time is compared to the time of convolution.

A matrix product and a copy show the throughput that a device can reach. Naive im2col is a replacement of
convolution that users often patch into a model.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from rocmprobe.checks.tools.computation import Named
from rocmprobe.checks.tools.context import CheckContext
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.checks.tools.tensors import Tensors
from rocmprobe.model.problems import Problem

if TYPE_CHECKING:
    from torch import Tensor

#: Maximum seconds of one run. A slower yardstick is skipped, because it would take most of the check's time.
LONGEST_RUN = 0.5
#: Numbers of rows and columns of the square matrices to try. Three of the largest take 192 MiB in fp32.
_SIDES = (128, 256, 512, 1024, 2048, 4096)
#: Maximum seconds of one product. This limit is small, because the product is repeated about ten times for
#: each problem.
_LONGEST_PRODUCT = 0.03
#: The chosen matrix is the smallest whose throughput is at most this factor below the highest throughput of
#: all tried matrices.
_PLATEAU = 1.1
_MIB = 1 << 20
#: Bytes to copy on a GPU, but at most this fraction of the GPU's memory. 512 MiB is more than any GPU cache
#: (up to 256 MiB). Source and target together take 1/24 of the memory. This fraction fits into a 6 GB card
#: that also runs a desktop, and exceeds the caches of every card in data/gpus.toml.
_COPIED_OF_GPU, _SHARE_OF_GPU = 512 * _MIB, 1 / 48
#: Bytes of a small copy, which predicts the time of the full copy.
_TRIED = 4 * _MIB
#: Bytes to copy on a CPU: this many times the size of its last cache, within these limits. Source and target
#: together are then four times as large as the cache.
_TIMES_OF_CACHE, _COPIED_OF_CPU = 2, (64 * _MIB, 256 * _MIB)
_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_CACHE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


@dataclass(frozen=True)
class Yardstick:
    """A call to time, and the amount of work per call.

    ``unit`` is "flops", "bytes" (read and written), or "" if the amount is not used.
    """

    call: Callable[[], object]
    amount: float = 0.0
    unit: str = ""


def gemm(context: CheckContext) -> Yardstick:
    """Return a yardstick that multiplies two square matrices."""
    import torch

    side = _side_at_plateau(context)
    left, right, product = (
        torch.ones((side, side), dtype=context.dtype, device=context.device) for _ in range(3)
    )
    return Yardstick(lambda: torch.mm(left, right, out=product), 2.0 * side**3, "flops")


def copy(context: CheckContext) -> Yardstick:
    """Return a yardstick that copies, on the device, a tensor larger than the device's caches.

    Raise NotApplicable if the copy would take too long.
    """
    import torch

    size = _copied_bytes(context.device)
    seconds = _least_copy_seconds(context, _TRIED) * size / _TRIED
    if seconds > LONGEST_RUN:
        raise NotApplicable(f"a run of {size // _MIB} MiB would take about {seconds:.2g} s")
    source = torch.zeros(size // 4, dtype=torch.float32, device=context.device)
    target = torch.zeros_like(source)
    return Yardstick(lambda: target.copy_(source), 2.0 * size, "bytes")


YARDSTICKS: dict[str, Callable[[CheckContext], Yardstick]] = {"gemm": gemm, "copy": copy}

#: Sizes of matrices, keyed by device and dtype, so that every problem is compared to the same product.
_found: dict[tuple[str, str], int] = {}


def _side_at_plateau(context: CheckContext) -> int:
    """Return the smallest side of square matrices at which products nearly reach the highest throughput."""
    key = (context.device, context.dtype_name)
    if key not in _found:
        _found[key] = _searched(context)
    return _found[key]


def _searched(context: CheckContext) -> int:
    rates: dict[int, float] = {}
    for side in _SIDES:
        seconds = _least_seconds(context, side)
        rates[side] = 2 * side**3 / seconds
        # A matrix with twice as many rows and columns takes eight times as long.
        if 8 * seconds > _LONGEST_PRODUCT:
            break
    return next(side for side, rate in rates.items() if rate * _PLATEAU >= max(rates.values()))


def _least_seconds(context: CheckContext, side: int) -> float:
    import torch

    matrix = torch.ones((side, side), dtype=context.dtype, device=context.device)
    return _shortest(context, lambda: torch.mm(matrix, matrix))


def _least_copy_seconds(context: CheckContext, size: int) -> float:
    import torch

    source = torch.zeros(size // 4, dtype=torch.float32, device=context.device)
    target = torch.empty_like(source)
    return _shortest(context, lambda: target.copy_(source))


def _shortest(context: CheckContext, call: Callable[[], object]) -> float:
    """Run ``call`` a few times, and return the seconds of the fastest run."""
    taken = []
    for _ in range(4):
        context.backend.synchronize(context.device)
        started = time.perf_counter()
        call()
        context.backend.synchronize(context.device)
        taken.append(time.perf_counter() - started)
    return min(taken)


def _copied_bytes(device: str) -> int:
    import torch

    if device == "cpu":
        least, most = _COPIED_OF_CPU
        return min(max(_TIMES_OF_CACHE * last_cache_bytes(), least), most)
    memory = torch.cuda.get_device_properties(device).total_memory
    return int(min(_COPIED_OF_GPU, memory * _SHARE_OF_GPU)) // _MIB * _MIB


@lru_cache(maxsize=1)
def last_cache_bytes(folder: str = _CACHES) -> int:
    """Return the size in bytes of the first core's largest cache, or 0 if it is unknown."""
    sizes = [0]
    for file in Path(folder).glob("index*/size"):
        match = re.fullmatch(r"([0-9]{1,9})([KM]?)", file.read_text().strip())
        sizes += [int(match[1]) * _CACHE_UNITS[match[2]]] if match else []
    return max(sizes)


def has_naive(problem: Problem) -> bool:
    """Return True if ``F.unfold`` supports this problem."""
    return problem.rank == 2 and not problem.transposed


def run_naive(problem: Problem, direction: str, tensors: Tensors) -> Named:
    """Compute one direction of a convolution by naive im2col, without the gradient of the bias.

    Results have the same names and shapes as the results of ``tools.tensors.run``.
    """
    import torch.nn.functional as F

    window = (problem.kernel, problem.dilation, problem.padding, problem.stride)
    batch, groups = problem.batch, problem.groups
    filters = tensors.weight.reshape(groups, problem.out_channels // groups, -1)

    def columns() -> Tensor:
        unfolded = F.unfold(tensors.input, *window)
        return unfolded.view(batch, groups, -1, unfolded.shape[-1])

    if direction == "fwd":
        output = (filters @ columns()).view(problem.output_shape)
        return {"output": output if tensors.bias is None else output + tensors.bias.view(-1, 1, 1)}
    grad = tensors.grad.reshape(batch, groups, problem.out_channels // groups, -1)
    if direction == "bwd-data":
        unfolded = filters.transpose(1, 2) @ grad
        return {"input": F.fold(unfolded.flatten(1, 2), problem.input_size, *window)}
    return {"weight": (grad @ columns().transpose(2, 3)).sum(0).view(problem.weight_shape)}
