"""Times of a simulated machine, which replace the times measured on the real CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rocmprobe.checks import MODELS
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.model.problems import DTYPES, parse_problem
from rocmprobe.model.roofline import DIRECTIONS_IN, Roof, work

#: Factors that give the values of a timing, relative to its median. Keyed by suffix of the value's name.
_SPREAD = {"": 1.0, "_mean": 1.0, "_p10": 0.98, "_p90": 1.02}
_RATES = ("gemm", "copy", "convolution")


@dataclass(frozen=True)
class Speeds:
    """Speed of a simulated machine.

    - ``gemm``, ``convolution``: operations per second
    - ``copy``: bytes per second
    - ``launch``: additional seconds for each direction of a convolution
    - ``steps``: seconds of a training step, by network
    - ``step``, ``sample``: a step of the small ResNet with batch n takes ``step + n * sample`` seconds
    - ``settings``, ``dtypes``: where these speeds apply (empty: everywhere)
    """

    gemm: float
    copy: float
    convolution: float
    launch: float = 0.0
    steps: Mapping[str, float] = field(default_factory=dict)
    step: float = 0.0
    sample: float = 0.0
    fits: int = 1
    settings: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    source: str = ""

    def concerns(self, case: Case) -> bool:
        return (not self.settings or case.setting in self.settings) and (
            not self.dtypes or case.dtype in self.dtypes
        )

    def step_seconds(self, batch: int) -> float:
        return self.step + batch * self.sample


def speeds_of(row: Mapping[str, Any]) -> Speeds:
    """Parse an entry of [[speeds]] in a machine's file.

    Raise TypeError or ValueError if ``row`` is invalid.
    """
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in row.items()
    }
    found = Speeds(**fields)
    if any(not isinstance(getattr(found, name), float) or getattr(found, name) <= 0 for name in _RATES):
        raise ValueError(f"speeds: {', '.join(_RATES)} must be above 0, with a decimal point (2.0)")
    for dtype in found.dtypes:
        if dtype not in DTYPES.values():
            raise ValueError(f"speeds: dtype {dtype!r} is not one of {', '.join(DTYPES.values())}")
    for network in found.steps:
        if f"train-{network}" not in MODELS:
            raise ValueError(f"speeds: {network!r} is not one of the networks")
    return found


def with_times(result: CheckResult, case: Case, speeds: Iterable[Speeds]) -> CheckResult:
    """Return ``result`` with times from the first item of ``speeds`` that applies to ``case``."""
    own = next((each for each in speeds if each.concerns(case)), None)
    if own is None or result.state != "pass":
        return result
    if case.check == "throughput":
        return replace(result, timings=_throughput(result.timings, case, own))
    if case.check in MODELS and "step" in result.timings:
        return _trained(result, case.check.removeprefix("train-"), own)
    if case.check == "batch-sizes" and own.step:
        return _curve(result, own)
    return result


def _throughput(timings: Mapping[str, Any], case: Case, own: Speeds) -> dict[str, Any]:
    problem = parse_problem(str(case.problem))
    seconds: dict[str, float] = {}
    for key, launches in DIRECTIONS_IN.items():
        todo = work(problem, key)
        ideal = todo.flops / Roof(own.convolution, own.copy).attainable(todo)
        seconds[key] = ideal + launches * own.launch
    for key, amount, rate in (("gemm", "gemm_flops", own.gemm), ("copy", "copy_bytes", own.copy)):
        if amount in timings:
            seconds[key] = timings[amount] / rate
    found = {key: value for key, value in timings.items() if not key.startswith("naive_")}
    for key, value in seconds.items():
        found.update(_spread(key, value, timings))
    return found


def _trained(result: CheckResult, network: str, own: Speeds) -> CheckResult:
    if network not in own.steps:
        return result
    timings = {key: value for key, value in result.timings.items() if key != "first_step"}
    timings.update(_spread("step", own.steps[network], timings))
    return replace(result, timings=timings)


def _curve(result: CheckResult, own: Speeds) -> CheckResult:
    batches = [1 << power for power in range(own.fits.bit_length())]
    rates = [float(f"{batch / own.step_seconds(batch):.6g}") for batch in batches]
    memory = {"largest_batch": batches[-1], "refused_batch": 2 * batches[-1], "ended_by": "memory"}
    return replace(result, numerics={"batches": batches, "samples_per_second": rates}, memory=memory)


def _spread(key: str, median: float, timings: Mapping[str, Any]) -> dict[str, float]:
    return {f"{key}{end}": factor * median for end, factor in _SPREAD.items() if f"{key}{end}" in timings}
