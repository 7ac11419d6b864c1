"""What convolution is measured beside: a matrix product and a copy, what a device does at its best, and the
convolution that is commonly patched into a model.

A yardstick is no part of the question: what goes wrong with it costs a figure, not the answer.
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

#: Seconds that one run of a yardstick may take; a slower one is left out, for it would take most of the time.
LONGEST_RUN = 0.5
#: Sides of the square matrices that are tried. The largest three take 192 MiB in fp32.
_SIDES = (128, 256, 512, 1024, 2048, 4096)
#: Seconds that one product may take: it is repeated some ten times for each problem.
_LONGEST_PRODUCT = 0.03
#: On the plateau no side that is tried is faster by more than this.
_PLATEAU = 1.1
_MIB = 1 << 20
#: Bytes of the tensor that is copied. On a GPU at most the last, which is past its caches up to 256 MiB, and
#: no more than this share of its memory: both ends take 1/24, which a 6 GB card with a desktop has, and which
#: is past the caches of every card in data/gpus.toml.
_COPIED_OF_GPU, _SHARE_OF_GPU = 512 * _MIB, 1 / 48
#: Bytes of the copy that predicts how long that one would take.
_TRIED = 4 * _MIB
#: On a CPU this many times its last cache, so that both ends are four times as large; between the bounds.
_TIMES_OF_CACHE, _COPIED_OF_CPU = 2, (64 * _MIB, 256 * _MIB)
_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_CACHE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


@dataclass(frozen=True)
class Yardstick:
    """What is repeated, and how much one run does: operations ("flops"), or "bytes" read and written; ""
    where that is the problem's."""

    call: Callable[[], Any]
    amount: float = 0.0
    unit: str = ""


def gemm(context: CheckContext) -> Yardstick:
    """The product of two square matrices in the requested dtype, as large as pays."""
    import torch

    side = _side_at_plateau(context)
    left, right, product = (
        torch.ones((side, side), dtype=context.dtype, device=context.device) for _ in range(3)
    )
    return Yardstick(lambda: torch.mm(left, right, out=product), 2.0 * side**3, "flops")


def copy(context: CheckContext) -> Yardstick:
    """A copy on the device, of a tensor that its caches do not hold. Raises NotApplicable, before it takes
    the memory, where a small one shows that it takes too long."""
    import torch

    size = _copied_bytes(context.device)
    seconds = _least_copy_seconds(context, _TRIED) * size / _TRIED
    if seconds > LONGEST_RUN:
        raise NotApplicable(f"a run of {size // _MIB} MiB would take about {seconds:.2g} s")
    source = torch.zeros(size // 4, dtype=torch.float32, device=context.device)
    target = torch.zeros_like(source)
    return Yardstick(lambda: target.copy_(source), 2.0 * size, "bytes")


YARDSTICKS: dict[str, Callable[[CheckContext], Yardstick]] = {"gemm": gemm, "copy": copy}

#: The sides found in this process, by device and dtype: every problem is held against the same product.
_found: dict[tuple[str, str], int] = {}


def _side_at_plateau(context: CheckContext) -> int:
    """The smallest side on the plateau of the rate, among those whose product is short."""
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
    """Seconds of the shortest of a few runs: only a slow run can be chance."""
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
    """Bytes of the first core's largest cache, as the kernel reports them; 0 where it does not."""
    sizes = [0]
    for file in Path(folder).glob("index*/size"):
        match = re.fullmatch(r"([0-9]{1,9})([KM]?)", file.read_text().strip())
        sizes += [int(match[1]) * _CACHE_UNITS[match[2]]] if match else []
    return max(sizes)


def has_naive(problem: Problem) -> bool:
    """Whether ``F.unfold`` cuts the windows of this problem."""
    return problem.rank == 2 and not problem.transposed


def run_naive(problem: Problem, direction: str, tensors: Tensors) -> dict[str, Any]:
    """Convolution as it is commonly patched into a model: all windows of the batch copied side by side
    (unfold), and one product. What the bypass computes is its own matter.

    One direction by unfold, matmul and fold, named as ``tensors.run`` does: "output" (N, K, OH, OW),
    "input" (N, C, H, W) or "weight" (K, C/groups, KH, KW). The gradient of the bias is left out."""
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
