"""Ranking of settings by correctness, reproducibility, speed, memory and size of the change."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rocmprobe.judge.assessment import Assessment, assess, owed_to_the_user, times
from rocmprobe.judge.recommendation.speed import SAME_MEMORY, Speed, peaks, speed
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.model.results import NATIVE, VERDICTS, Results

#: If convolution works without changes, another setting is recommended only if it is faster by more than this
#: factor. The factor compares the best times (p10) without changes to the worst times (p90) of the setting.
WORTH_A_CHANGE = 1.5


def ranked(results: Results, dtype: str, purpose: str) -> list[Assessment]:
    """Return the tested settings: the best one, other correct ones by speed, and failing ones."""
    found = [assess(results, setting, dtype, purpose) for setting in results.settings]
    found = [each for each in found if each.counted]
    right = [each for each in found if each.right]
    if not right:
        return found
    for_all = [each for each in right if not owed_to_the_user(each, right)]
    best = _best(results, for_all or right, dtype, purpose)
    measured = speed(results, [each.setting for each in right], dtype, purpose)

    def order(each: Assessment) -> tuple[object, ...]:
        name = each.setting.name
        level = measured.level(name, best.setting.name)
        seconds = 0.0 if level else measured.seconds.get(name, math.inf)
        return each.setting.verdict == "cpu", not each.stable, not level, seconds, _change(each)

    others = sorted((each for each in right if each is not best), key=order)
    return [best, *others, *(each for each in found if not each.right)]


def _best(results: Results, right: list[Assessment], dtype: str, purpose: str) -> Assessment:
    """Return the best of the correct settings ``right``."""
    # Prefer the GPU, because users with a GPU want to use it.
    left = [each for each in right if each.setting.verdict != "cpu"] or right
    # Avoid an override, because kernels for another ISA can have faults that no case shows.
    left = [each for each in left if OVERRIDE not in each.setting.env] or left
    unchanged = next((each for each in left if each.setting.unchanged), None)
    if unchanged and not _change_pays(results, unchanged, left, dtype, purpose):
        return unchanged
    left = [each for each in left if each.stable] or left
    natives = [each for each in left if each.setting.verdict in NATIVE]
    # Times of a simulation are not from the vendor library, so prefer the library without comparing times.
    if results.simulated and natives:
        left = natives
    left = _fastest(left, speed(results, [each.setting for each in left], dtype, purpose))
    memory = peaks(results, [each.setting for each in left], dtype, purpose)
    left = [each for each in left if _takes_little(each, memory)]
    return min(left, key=_change)


def _fastest(found: list[Assessment], measured: Speed) -> list[Assessment]:
    if not measured.seconds:
        return found
    shortest = min(measured.seconds, key=measured.seconds.__getitem__)
    return [each for each in found if measured.level(each.setting.name, shortest)]


def _takes_little(each: Assessment, memory: Mapping[str, float]) -> bool:
    return not memory or memory.get(each.setting.name, 0.0) <= SAME_MEMORY * min(memory.values())


def _change_pays(
    results: Results, unchanged: Assessment, others: list[Assessment], dtype: str, purpose: str
) -> bool:
    """Return True if a setting with reproducible results is clearly faster than ``unchanged``."""
    stable = [each.setting for each in others if each.stable]
    names, name = [*(each.name for each in stable), unchanged.setting.name], unchanged.setting.name
    own = times(results, names, dtype, purpose, "_p10").get(name)
    theirs = times(results, names, dtype, purpose, "_p90")
    # In a simulation, the times are not from MIOpen on the GPU.
    if results.simulated or own is None:
        return False
    faster = [other for other, seconds in theirs.items() if own > WORTH_A_CHANGE * seconds]
    measured = speed(results, [*stable, unchanged.setting], dtype, purpose)
    return any(measured.comparable(name, other) for other in faster)


def _change(each: Assessment) -> tuple[int, int]:
    """Return a sort key that grows with the size of a setting's change."""
    setting = each.setting
    switches = len(setting.env) + len(setting.torch) + setting.bypass + (not setting.vendor_library)
    kind = "native-with-settings" if setting.pytorch_layers else setting.verdict
    return VERDICTS.index(kind), switches + len(setting.pytorch_layers)
