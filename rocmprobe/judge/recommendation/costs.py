"""Time and memory of the settings that give correct results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.assessment import Assessment
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.recommendation.ranking import ranked
from rocmprobe.judge.recommendation.speed import TOO_NOISY, Speed, peaks, speed
from rocmprobe.model.results import Results

#: Maximum number of settings in the comparison of costs.
_MOST = 6


@dataclass(frozen=True)
class SettingCost:
    """Time and memory that a correct setting needs.

    ``time`` and ``memory`` are relative to the setting ``Costs.reference`` (1.0 is equal), or None if not
    measured. ``low`` and ``high`` are the range of ``time`` within the noise.
    """

    setting: str
    recommended: bool
    time: Optional[float]
    low: Optional[float]
    high: Optional[float]
    memory: Optional[float]


@dataclass(frozen=True)
class Costs:
    """Time and memory of the correct settings for one dtype.

    ``busy`` is True if the times are too noisy to compare. ``why`` is a sentence that compares the
    recommended setting with the next best setting of another kind.
    """

    dtype: str
    reference: str
    rows: tuple[SettingCost, ...]
    busy: bool
    why: str


def costs(results: Results) -> Optional[Costs]:
    """Return the costs of the correct settings, or None if there is nothing to compare."""
    run, found = Evidence(results), results.recommendation
    if found is None or not found.configuration.setting:
        return None
    dtype = next(iter(found.per), "float32/").partition("/")[0]
    right = [each for each in ranked(run, dtype, run.results.purpose) if each.right]
    chosen = next((each for each in right if each.setting.name == found.configuration.setting), None)
    if chosen is None or len(right) < 2:
        return None
    measured = _measured(run, right, dtype)
    memory = peaks(run, [each.setting for each in right], dtype, run.results.purpose)
    native = next((each for each in right if each.setting.unchanged), None)
    reference = (native or chosen).setting.name
    first = [chosen, *(each for each in right if each is not chosen)]
    shown = [each for each in first if each.setting.name in {*measured.seconds, *memory}][:_MOST]
    rows = tuple(_cost(each.setting.name, chosen.setting.name, reference, measured, memory) for each in shown)
    busy = (
        max((measured.noise(chosen.setting.name, name) for name in measured.seconds), default=1.0) > TOO_NOISY
    )
    if not rows:
        return None
    return Costs(dtype, reference, rows, busy, _why(chosen, right, measured, memory, busy))


def _measured(run: Evidence, right: Sequence[Assessment], dtype: str) -> Speed:
    return speed(run, [each.setting for each in right], dtype, run.results.purpose)


def _cost(name: str, chosen: str, reference: str, measured: Speed, memory: dict[str, float]) -> SettingCost:
    time = low = high = None
    if name in measured.seconds and reference in measured.seconds:
        time = measured.seconds[name] / measured.seconds[reference]
        noise = 1.0 if name == reference else measured.noise(name, reference)
        low, high = time / noise, time * noise
    peak = memory[name] / memory[reference] if name in memory and memory.get(reference) else None
    return SettingCost(name, name == chosen, time, low, high, peak)


def _why(
    chosen: Assessment, right: Sequence[Assessment], measured: Speed, memory: dict[str, float], busy: bool
) -> str:
    other = next(
        (each for each in right if each.setting.verdict not in (chosen.setting.verdict, "cpu")), None
    )
    if other is None:
        return ""
    one, two, parts = chosen.setting.name, other.setting.name, []
    if busy:
        parts.append("speeds not compared (the machine was busy)")
    elif measured.level(one, two):
        parts.append("same speed")
    elif {one, two} <= set(measured.seconds):
        parts.append(f"{measured.seconds[one] / measured.seconds[two]:.2f}x the time")
    if one in memory and memory.get(two):
        share = f"{memory[one] / memory[two]:.2f}x the"
        parts.append(f"{'same' if share.startswith('1.00x') else share} memory")
    return f"{one} instead of {two}: {', '.join(parts)}." if parts else ""
