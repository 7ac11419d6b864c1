"""Time and memory of the settings that give correct results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from rocmprobe.judge.assessment import Assessment
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.recommendation.speed import TOO_NOISY, Speed, too_noisy
from rocmprobe.knowledge.settings import title
from rocmprobe.model.results import Costs, SettingCost

#: Maximum number of settings in the comparison of costs.
_MOST = 6


def costs(
    ranked: Sequence[Assessment], dtype: str, measured: Speed, memory: Mapping[str, float]
) -> Optional[Costs]:
    """Return the costs of the correct settings in ``ranked``, or None if there is nothing to compare."""
    right = [each.setting for each in ranked if each.right]
    shown = [each.name for each in right if each.name in {*measured.seconds, *memory}][:_MOST]
    if len(right) < 2 or not shown:
        return None
    chosen = right[0].name
    reference = next((each.name for each in right if each.unchanged), chosen)
    rows = tuple(_cost(name, chosen, reference, measured, memory) for name in shown)
    noise = max((measured.noise(chosen, name) for name in measured.seconds), default=1.0)
    return Costs(dtype, reference, rows, noise > TOO_NOISY)


def _cost(
    name: str, chosen: str, reference: str, measured: Speed, memory: Mapping[str, float]
) -> SettingCost:
    time = low = high = None
    if name in measured.seconds and reference in measured.seconds:
        time = measured.seconds[name] / measured.seconds[reference]
        noise = 1.0 if name == reference else measured.noise(name, reference)
        low, high = time / noise, time * noise
    peak = memory[name] / memory[reference] if name in memory and memory.get(reference) else None
    return SettingCost(name, name == chosen, time, low, high, peak)


def cost_sentence(
    run: Evidence, best: Assessment, dtype: str, measured: Speed, memory: Mapping[str, float]
) -> str:
    """Return the time and memory of ``best``, relative to the other correct settings, in words."""
    own = best.setting.name

    def differing_title(name: str) -> str:
        """Return the title of the setting ``name`` without the members that ``best`` has, too."""
        members = [member for member in name.split("+") if member not in own.split("+")]
        return title("+".join(members) or name)

    problems = f" over the {dtype} convolutions of your program" if run.results.options.get("shapes") else ""
    rivals = [
        (f"{measured.seconds[own] / measured.seconds[name]:.2f}x of {differing_title(name)}", name)
        for name in _rivals(run, best, measured.seconds)
    ]
    times = [comparison for comparison, name in rivals if not measured.level(own, name)]
    level = [differing_title(name) for _, name in rivals if measured.level(own, name)]
    if level:
        times.append(f"same as {' and '.join(level)} (difference within noise)")
    time = f"time{problems}: {', '.join(times)}" if times else ""
    noise = max((measured.noise(own, name) for _, name in rivals), default=1.0)
    if noise > TOO_NOISY:
        time, times = too_noisy(noise), []
    if own not in measured.seconds:
        time = "speed was not measured"
    peak_ratios = [
        f"{memory[own] / memory[name]:.2f}x of {differing_title(name)}" for name in _rivals(run, best, memory)
    ]
    peak = f"peak memory: {', '.join(peak_ratios)}" if peak_ratios else ""
    return "; ".join(filter(None, [time, peak, best.setting.cost]))


def _rivals(run: Evidence, best: Assessment, found: Mapping[str, float]) -> list[str]:
    """Return a setting for each verdict except "cpu" and the verdict of ``best``.

    If nothing has to be changed, settings with other variables or flags are no rivals either. The setting
    needs the least time or memory of all settings with this verdict. ``found`` maps settings to their time
    or memory.
    """
    others = ["native-with-settings"] if best.setting.unchanged else []
    least: dict[str, str] = {}
    for setting in run.settings:
        if setting.name in found and setting.verdict not in (best.setting.verdict, "cpu", *others):
            rival = least.get(setting.verdict, setting.name)
            least[setting.verdict] = min(rival, setting.name, key=found.__getitem__)
    return list(least.values()) if best.setting.name in found else []
