"""Comparison of a card's speed with other cards, for matrix product, copy and convolution.

Each speed is a fraction of the card's peak. ``data/reference_speeds.toml`` has the published fractions of
other cards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Optional

from rocmprobe.judge.noise import time_of
from rocmprobe.knowledge.reference_speeds import (
    Peak,
    Published,
    SlowReason,
    explanations,
    peak_of,
    published_for,
)  # fmt: skip
from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import BadInput, Gpu, Outcome, Results
from rocmprobe.model.roofline import DIRECTIONS_IN, Roof, Work, measure_roof, work

#: A card is slow if its fraction of peak is below the smallest published fraction, multiplied by this
#: factor. The factor is low enough for the differences between normal cards. Published fractions of one
#: network differ by less than a tenth between an RX 5700 and an RX 6800 (data/reference_speeds.toml).
#: Published fractions of a matrix product differ by a fifth between two RDNA1 cards with different libraries.
SLOW = 0.75
#: Seconds to launch a kernel (RX 5500 XT). If the ideal time of a layer is shorter than five launches per
#: direction, launching can explain a slow layer. If it is shorter than two launches, the layer is not
#: compared.
_LAUNCH = 13e-6
_SMALL_LAYER, _TINY_LAYER = 5 * _LAUNCH, 2 * _LAUNCH
#: A busy card counts as throttled if its clock never exceeds this fraction of its maximum clock.
_LOW_CLOCK = 0.8
#: Load in per cent from which a GPU counts as busy.
_BUSY = 80.0
_HALF = ("float16", "bfloat16")
#: Beginning of a finding's id, keyed by the explanation that follows from the finding.
_BY_FINDING = {"heat": "thermal-throttling", "power-cap": "power-cap", "memory-taken": "vram-taken"}
#: All valid names of an [[explanation]] in data/reference_speeds.toml.
SEEN = (*_BY_FINDING, "low-clock", "override", "half-precision", "small-layer", "untuned-library")
_DIRECTIONS = ("fwd", "fwd_bwd")


@dataclass(frozen=True)
class NormalSpeed:
    """One measured speed of a device, compared with other cards.

    ``rate`` is in operations per second, or bytes per second for a copy. ``peak`` is the highest possible
    rate, or None if unknown, and ``share`` is rate / peak. ``memory_bound`` is True if memory bandwidth
    limits the peak. ``verdict`` is "normal", "slow", or "" without published figures.
    """

    device: str
    kind: str
    name: str
    dtype: str
    rate: float
    setting: str = ""
    direction: str = ""
    peak: Optional[float] = None
    share: Optional[float] = None
    memory_bound: bool = False
    others: tuple[Published, ...] = ()
    verdict: str = ""
    explanations: tuple[SlowReason, ...] = ()


def normal_speeds(results: Results) -> tuple[NormalSpeed, ...]:
    """Return the speeds of each AMD GPU in matrix products, copies and convolutions."""
    if results.simulated:
        return ()
    # Filter by setting, because ``device`` of an outcome is the GPU even under the setting "cpu".
    on_gpu = {each.name for each in results.settings if each.verdict != "cpu"}
    timed = [
        each
        for each in results.outcomes
        if each.check == "throughput" and each.works and each.setting in on_gpu
    ]
    devices = dict.fromkeys(each.device for each in timed if each.device != "cpu")
    return tuple(
        found
        for device in devices
        for found in _of_device(results, device, [each for each in timed if each.device == device])
    )


def gpu_of(results: Results, device: str) -> Optional[Gpu]:
    """Return the GPU that torch calls ``device``, e.g. "cuda:1", or None if the GPU is unknown."""
    number = device.partition(":")[2]
    by_number = [each for each in results.machine.gpus if number and str(each.index.value) == number]
    isas = {each.native_isa for each in results.outcomes if each.device == device and each.native_isa}
    by_isa = [each for each in results.machine.gpus if each.native_isa.value in isas]
    found = by_number or by_isa
    return found[0] if len(found) == 1 else None


def _of_device(results: Results, device: str, timed: Sequence[Outcome]) -> Iterator[NormalSpeed]:
    gpu = gpu_of(results, device)
    if gpu is None or gpu.vendor.value != "amd":
        return
    peak = peak_of(gpu)
    roofs = [(each.dtype, found) for each in timed if (found := measure_roof(each.timings))]
    for dtype in dict.fromkeys(dtype for dtype, _ in roofs):
        rate = median(found.flops for own, found in roofs if own == dtype)
        yield _judged(results, gpu, peak, NormalSpeed(device, "gemm", "matrix product", dtype, rate))
    if roofs:
        rate = median(found.bytes for _, found in roofs)
        yield _judged(results, gpu, peak, NormalSpeed(device, "copy", "copy", "float32", rate))
    for outcome in timed:
        if outcome.setting == _setting(results, outcome.dtype, timed):
            yield from _convolutions(results, gpu, peak, outcome)


def _setting(results: Results, dtype: str, timed: Iterable[Outcome]) -> Optional[str]:
    per = results.recommendation.per if results.recommendation else {}
    wanted = per.get(f"{dtype}/{results.purpose}", {}).get("setting"), "default"
    known = {each.setting for each in timed if each.dtype == dtype}
    return next((each for each in wanted if each in known), None)


def _convolutions(results: Results, gpu: Gpu, peak: Peak, outcome: Outcome) -> Iterator[NormalSpeed]:
    try:
        problem = parse_problem(str(outcome.problem))
    except BadInput:
        # Results from other people can have names of problems in another format.
        return
    for direction in _DIRECTIONS:
        seconds = time_of(outcome.timings.get(direction))
        if seconds is None:
            continue
        todo = work(problem, direction)
        found = NormalSpeed(
            outcome.device, "convolution", str(outcome.problem), outcome.dtype, todo.flops / seconds,
            outcome.setting, direction,
        )  # fmt: skip
        yield _judged(results, gpu, peak, found, todo, _like(problem))


def _like(problem: Problem) -> str:
    plain = problem.rank == 2 and not problem.transposed and problem.groups == 1
    steps = {*problem.stride, *problem.dilation} == {1}
    kind = "x".join(map(str, problem.kernel))
    return kind if plain and steps and kind in ("3x3", "1x1") else ""


def _judged(
    results: Results, gpu: Gpu, peak: Peak, found: NormalSpeed, todo: Optional[Work] = None, like: str = ""
) -> NormalSpeed:  # fmt: skip
    most = peak.of(found.kind, found.dtype)
    if most is None:
        return found
    bound = False
    if todo is not None and peak.bytes is not None:
        attainable = Roof(most, peak.bytes).attainable(todo)
        most, bound = attainable, attainable < most
    share = found.rate / most
    gfx = str(gpu.native_isa.value).partition(":")[0]
    figures = published_for(gfx, found.kind, found.dtype, found.direction)
    # Published fractions of networks are for layers that are mostly limited by arithmetic. So do not compare
    # layers that are limited by memory bandwidth.
    ideal = todo.flops / most / DIRECTIONS_IN[found.direction] if todo else math.inf
    comparable = ideal >= _TINY_LAYER and not bound
    others = tuple(each for each in figures if todo is None or (like in each.like and comparable))
    verdict = ""
    if others:
        verdict = "slow" if share < SLOW * min(each.share for each in others) else "normal"
    seen = _seen(results, gpu, peak, found.dtype, ideal < _SMALL_LAYER) if verdict == "slow" else frozenset()
    reasons = tuple(each for each in explanations() if each.name in seen and each.concerns(found.kind, gfx))
    return replace(
        found,
        peak=most,
        share=share,
        memory_bound=bound,
        others=others,
        verdict=verdict,
        explanations=reasons,
    )


def _seen(results: Results, gpu: Gpu, peak: Peak, dtype: str, small: bool) -> frozenset[str]:
    address = str(gpu.address.value)
    found = {
        name
        for name, start in _BY_FINDING.items()
        if any(each.id in (start, f"{start}-{address}") for each in results.findings)
    }
    posing = gpu.native_isa.value != gpu.effective_isa.value
    facts = {
        "low-clock": _clock_is_low(results, address, peak), "override": posing, "untuned-library": not posing,
        "half-precision": dtype in _HALF, "small-layer": small,
    }  # fmt: skip
    return frozenset({*found, *(name for name, holds in facts.items() if holds)})


def _clock_is_low(results: Results, address: str, peak: Peak) -> bool:
    watched = [each for each in results.telemetry if each.device != "cpu"]
    own = next((each for each in watched if each.device == address or len(watched) == 1), None)
    if own is None or peak.clock_mhz is None:
        return False
    clocks = [
        each["core_clock_mhz"]
        for each in own.moments()
        if each.get("busy_percent", 0.0) >= _BUSY and "core_clock_mhz" in each
    ]
    return len(clocks) > 1 and max(clocks) < _LOW_CLOCK * peak.clock_mhz
