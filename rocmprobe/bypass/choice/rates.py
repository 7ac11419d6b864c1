"""Cost model: the expected time of a plan, from the throughput of a device."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import Any, Callable

import torch

from rocmprobe.bypass.algorithms import Plan

_SIDE = 512
_COPIED = 1 << 20
_LAUNCHES = 20
_REPEATS = 5


@dataclass(frozen=True)
class Rates:
    """Throughput of a device: flops per second, bytes copied per second, and seconds per kernel launch."""

    flops: float
    bytes: float
    launch: float

    def seconds(self, plan: Plan) -> float:
        """Return the expected seconds of ``plan``: arithmetic, copies and kernel launches."""
        sums = plan.flops / (self.flops * plan.gemm_share)
        return sums + plan.moved_bytes / self.bytes + plan.launches * self.launch


#: Rounded rates of a two-core CPU and of a mid-range GPU, for choices that must not depend on a measurement.
#: Only the ratios of the three rates of a device matter.
USUAL = {"cpu": Rates(1.5e11, 1.2e10, 6e-6), "cuda": Rates(5e12, 2e11, 8e-6)}


@cache
def measured(device: torch.device) -> Rates:
    """Return the fp32 rates of ``device``, or typical rates if the measurement fails.

    The first call for a device measures for about 10 ms and allocates about 14 MiB.
    """
    try:
        return _measured(device)
    except RuntimeError:
        return USUAL[device.type]


def _measured(device: torch.device) -> Rates:
    square = torch.ones((_SIDE, _SIDE), dtype=torch.float32, device=device)
    product = torch.empty_like(square)
    # The algorithms copy columns in short contiguous pieces, so the measurement also copies short pieces.
    runs = square.new_ones((_COPIED // 64, 128))[:, :64]
    copy, small = runs.new_empty(runs.shape), square.new_ones(1)

    def launches() -> None:
        for _ in range(_LAUNCHES):
            small.add_(1)

    return Rates(
        2 * _SIDE**3 / _least(device, lambda: torch.mm(square, square, out=product)),
        2 * 4 * _COPIED / _least(device, lambda: copy.copy_(runs)),
        _least(device, launches) / _LAUNCHES,
    )


def seconds(device: torch.device, call: Callable[[], Any]) -> float:
    """Run ``call``, and return its duration in seconds.

    On a GPU, this is the time between two events on the current stream.
    """
    if device.type != "cuda":
        started = time.perf_counter()
        call()
        return time.perf_counter() - started
    with torch.cuda.device(device):
        event: Any = torch.cuda.Event
        begin, end = event(enable_timing=True), event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def _least(device: torch.device, call: Callable[[], Any]) -> float:
    call()
    return max(1e-7, min(seconds(device, call) for _ in range(_REPEATS)))
