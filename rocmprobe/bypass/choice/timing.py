"""Measured times of plans, and the comparison of two plans under noise."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any, Callable

import torch

#: A faster plan replaces the plan of the cost model if the difference is this many times the noise.
_CLEARLY = 2.0


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


def fastest(times: Sequence[Sequence[float]]) -> int:
    """Return the index of the plan to use, from the times of each plan, in seconds.

    The first plan is used unless the median of another plan is clearly lower. The noise is the larger spread
    of both plans.
    """
    first = times[0]

    def gain(other: Sequence[float]) -> float:
        noise = max(max(each) - min(each) for each in (first, other))
        return statistics.median(first) - statistics.median(other) - _CLEARLY * noise

    clear = [index for index in range(1, len(times)) if gain(times[index]) > 0]
    return min(clear, key=lambda index: statistics.median(times[index]), default=0)
