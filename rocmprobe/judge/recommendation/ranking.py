"""Ranking of settings: correct ones first, then by the size of the change, then by measured speed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rocmprobe.judge.assessment import Assessment, owed_to_the_user
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.recommendation.speed import Speed, speed
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.model.results import NATIVE, VERDICTS

#: A larger change is recommended instead of a smaller one only if it is faster by more than this factor. The
#: factor compares the best times (p10) of the smaller change to the worst times (p90) of the larger one.
WORTH_A_CHANGE = 1.5


def ranked(run: Evidence, dtype: str, purpose: str) -> list[Assessment]:
    """Return the tested settings: the best one, other correct ones by size of the change, failing ones."""
    found = [run.assess(setting, dtype, purpose) for setting in run.settings]
    found = [each for each in found if each.counted]
    right = [each for each in found if each.right]
    if not right:
        return found
    order = {each.setting.name: _reservations(run, each, right, dtype) for each in right}
    candidates = [each for each in right if order[each.setting.name] == min(order.values())]
    measured = speed(run, [each.setting for each in candidates], dtype, purpose)
    # Times of a simulation are not from the GPU. A partial run can lack the times that would decide.
    timed = (
        not (run.results.simulated or run.results.partial)
        and {each.setting.name for each in candidates} <= measured.seconds.keys()
    )
    right.sort(key=lambda each: (order[each.setting.name], each.setting.slow and not timed, _change(each)))
    best = _worth_it(right[: len(candidates)], measured) if timed else right[0]
    return [best, *(each for each in right if each is not best), *(each for each in found if not each.right)]


def _reservations(
    run: Evidence, each: Assessment, right: Sequence[Assessment], dtype: str
) -> tuple[bool, bool, int, bool, bool]:
    """Return a sort key: settings with a reservation rank after those without it, whatever their speed."""
    setting = each.setting
    native = [other.setting for other in right if other.setting.verdict in NATIVE]
    fewest = min((run.broken_layers(other, dtype) for other in native), default=sys.maxsize)
    return (
        owed_to_the_user(each, right),
        # Users with a GPU want to use it.
        setting.verdict == "cpu",
        # To keep convolution in the library is worth a switch for another layer.
        max(0, run.broken_layers(setting, dtype) - fewest),
        # Kernels for another ISA can have faults that no case shows.
        OVERRIDE in setting.env,
        not (each.stable or setting.unchanged),
    )


def _worth_it(by_change: Sequence[Assessment], measured: Speed) -> Assessment:
    """Return the smallest change that no other setting beats by ``WORTH_A_CHANGE``.

    Of changes of the same size, return the fastest.
    """
    names = [each.setting.name for each in by_change]
    left = [
        each
        for each in by_change
        if not any(measured.is_faster(name, each.setting.name, WORTH_A_CHANGE) for name in names)
    ]
    same_size = [each for each in left if _change(each) == _change(left[0])]
    fastest = min(same_size, key=lambda each: measured.seconds[each.setting.name])
    return next(each for each in same_size if measured.level(each.setting.name, fastest.setting.name))


def _change(each: Assessment) -> tuple[int, bool, int]:
    """Return a sort key that grows with the size of a setting's change.

    Channels-last changes the program's model and inputs, so it counts as more than any number of switches.
    """
    setting = each.setting
    switches = len(setting.env) + len(setting.torch) + setting.bypass + (not setting.vendor_library)
    kind = "native-with-settings" if setting.pytorch_layers else setting.verdict
    switches += len(setting.pytorch_layers) + setting.inherit_environment
    return VERDICTS.index(kind), setting.channels_last, switches
