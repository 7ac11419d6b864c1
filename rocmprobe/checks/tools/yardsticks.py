"""Yardsticks for the time of convolution: a matrix product, a copy, and naive im2col.

The product and the copy show what a device achieves at best. Naive im2col is the replacement for convolution
that users commonly patch into a model. A yardstick is not part of the check: if it fails, only its own time
is lost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rocmprobe.checks.tools.context import CheckContext
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.checks.tools.tensors import Tensors
from rocmprobe.model.problems import Problem

#: Seconds that one run of a yardstick may take. A slower yardstick is skipped, because it would take most of
#: the time.
LONGEST_RUN = 0.5
#: Sides of the square matrices that are tried. The largest three take 192 MiB in fp32.
_SIDES = (128, 256, 512, 1024, 2048, 4096)
#: Seconds that one product may take, because it is repeated about ten times for each problem.
_LONGEST_PRODUCT = 0.03
#: On the plateau, no side that is tried is faster by more than this factor.
_PLATEAU = 1.1
_MIB = 1 << 20
#: Bytes of the tensor that is copied on a GPU: 512 MiB, which exceeds GPU caches of up to 256 MiB, but at
#: most this share of its memory. Source and target together take 1/24, which fits a 6 GB card with a desktop
#: and exceeds the caches of every card in data/gpus.toml.
_COPIED_OF_GPU, _SHARE_OF_GPU = 512 * _MIB, 1 / 48
#: Bytes of the copy that predicts the time of the full copy.
_TRIED = 4 * _MIB
#: On a CPU, this many times its last cache, so that source and target take four times its size. The bounds
#: limit it.
_TIMES_OF_CACHE, _COPIED_OF_CPU = 2, (64 * _MIB, 256 * _MIB)
_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_CACHE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


@dataclass(frozen=True)
class Yardstick:
    """A call to repeat, and the amount of work per run.

    ``unit`` is "flops" for operations, "bytes" for bytes read and written, or "" if the yardstick does the
    same work as the problem.
    """

    call: Callable[[], Any]
    amount: float = 0.0
    unit: str = ""


def gemm(context: CheckContext) -> Yardstick:
    """Return a yardstick that multiplies two square matrices in the requested dtype.

    The matrices are as large as is useful.
    """
    import torch

    side = _side_at_plateau(context)
    left, right, product = (
        torch.ones((side, side), dtype=context.dtype, device=context.device) for _ in range(3)
    )
    return Yardstick(lambda: torch.mm(left, right, out=product), 2.0 * side**3, "flops")


def copy(context: CheckContext) -> Yardstick:
    """Return a yardstick that copies, on the device, a tensor larger than the device's caches.

    Raise NotApplicable if a small copy shows that the full copy takes too long. The memory is allocated only
    afterwards.
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

#: Sides found in this process, by device and dtype, so that every problem is compared with the same product.
_found: dict[tuple[str, str], int] = {}


def _side_at_plateau(context: CheckContext) -> int:
    """Return the smallest side at which the rate reaches its plateau.

    Consider only sides whose product takes little time.
    """
    key = (context.device, context.dtype_name)
    if key not in _found:
        _found[key] = _searched(context)
    return _found[key]


def _searched(context: CheckContext) -> int:
    rates: dict[int, float] = {}
    for side in _SIDES:
        seconds = _least_seconds(context, side)
        rates[side] = 2 * side**3 / seconds
        # Twice the side is eight times the work.
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


def _shortest(context: CheckContext, call: Callable[[], Any]) -> float:
    """Return the seconds of the shortest of a few runs, because disturbances only make a run slower."""
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
    """Return the bytes of the first core's largest cache, or 0 if the kernel reports none."""
    sizes = [0]
    for file in Path(folder).glob("index*/size"):
        match = re.fullmatch(r"([0-9]{1,9})([KM]?)", file.read_text().strip())
        sizes += [int(match[1]) * _CACHE_UNITS[match[2]]] if match else []
    return max(sizes)


def has_naive(problem: Problem) -> bool:
    """Return True if ``F.unfold`` can cut the windows of this problem."""
    return problem.rank == 2 and not problem.transposed


def run_naive(problem: Problem, direction: str, tensors: Tensors) -> dict[str, Any]:
    """Compute a convolution by naive im2col, as users commonly patch it into a model, without the bypass.

    All windows of the batch are copied side by side (unfold) and multiplied at once. The function computes
    one direction by unfold, matmul and fold. Results are named like those of ``tensors.run``: "output" (N, K,
    OH, OW), "input" (N, C, H, W) or "weight" (K, C/groups, KH, KW). The gradient of the bias is left out.
    """
    import torch.nn.functional as F

    window = (problem.kernel, problem.dilation, problem.padding, problem.stride)
    batch, groups = problem.batch, problem.groups
    filters = tensors.weight.reshape(groups, problem.out_channels // groups, -1)

    def columns() -> Any:
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
