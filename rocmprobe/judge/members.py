"""Choice of the best Python environment of a joined run.

A joined run has one member for each environment. A member is an ordinary run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from rocmprobe.judge.assessment import device_of
from rocmprobe.judge.recommendation.recommend import ordered_dtypes
from rocmprobe.judge.recommendation.speed import Speed, speed, too_noisy
from rocmprobe.model.results import VERDICTS, JoinedRun, Member, Outcome, Results, Setting


def choose(joined: JoinedRun, judged: Mapping[str, Results]) -> JoinedRun:
    """Return ``joined`` with the best member, and with each member's verdict, setting and time.

    ``judged`` maps the names of members to their judged runs.
    """
    timed = _speed(judged)
    members = tuple(_answered(each, judged.get(each.name), timed) for each in joined.members)
    best = _best(members, judged, timed)
    on_cpu = {name for name, each in judged.items() if _on_cpu(each)}
    partial = any(each.name not in judged or judged[each.name].partial for each in joined.runs)
    if best is None:
        # The verdict "none" means that tests failed. A member with another verdict was not tested.
        failed = any(each.verdict == "none" for each in members)
        sentence = "No environment has a safe configuration." if failed else "No environment was tested."
        return replace(joined, partial=partial, members=members, chosen="", sentence=sentence, cost="")
    torch = f" (torch {best.torch})" if best.torch else ""
    where = " on the CPU" if best.name in on_cpu and len(on_cpu) < len(judged) else ""
    against = [_against(each, best, timed, on_cpu) for each in members if each is not best]
    return replace(
        joined,
        partial=partial,
        members=members,
        chosen=best.name,
        sentence=f"Use the environment {best.name}{torch}{where}.",
        cost="; ".join(against),
    )


def _speed(judged: Mapping[str, Results]) -> Speed:
    """Return the speed of each run under its recommended setting."""
    settings: list[Setting] = []
    outcomes: list[Outcome] = []
    chosen: list[Results] = []
    devices = set()
    for name, each in judged.items():
        setting = each.setting(each.recommended)
        if setting is None:
            continue
        device = device_of(each)
        devices.add(device)
        chosen.append(each)
        settings.append(replace(setting, name=name))
        outcomes += [
            replace(outcome, setting=name, device="any", id=f"{name}:{outcome.id}")
            for outcome in each.outcomes
            if outcome.setting == setting.name and outcome.device == device
        ]
    if not outcomes:
        return Speed({}, {}, 1.0)
    dtype = ordered_dtypes(chosen[0])[0]
    purpose = chosen[0].purpose
    every = replace(chosen[0], settings=tuple(settings), outcomes=tuple(outcomes))
    found = speed(every, settings, dtype, purpose)
    # The drift is the factor by which the speed of matrix products or copies differs between the runs. On one
    # device, such a difference is noise. Different devices always differ in speed, so ignore their drift.
    return found if len(devices) == 1 else replace(found, drift=1.0)


def _answered(member: Member, judged: Optional[Results], timed: Speed) -> Member:
    if judged is None:
        return member
    found, setting = judged.recommendation, judged.setting(judged.recommended)
    return replace(
        member,
        torch=str(judged.machine.value("torch.version") or ""),
        device=(setting.device if setting else None) or device_of(judged) or "",
        verdict=found.verdict if found else "",
        setting=setting.name if setting else "",
        seconds=timed.seconds.get(member.name),
    )


def _best(members: Sequence[Member], judged: Mapping[str, Results], timed: Speed) -> Optional[Member]:
    """Return the fastest member with a correct setting, or None. Prefer any GPU to the CPU."""
    right = [each for each in members if each.setting]
    right = [each for each in right if not _on_cpu(judged[each.name])] or right
    fastest = min(right, key=lambda each: timed.seconds.get(each.name, math.inf), default=None)
    if fastest and fastest.name in timed.seconds:
        right = [each for each in right if timed.level(each.name, fastest.name)]
    return min(right, key=lambda each: VERDICTS.index(each.verdict), default=None)


def _on_cpu(judged: Results) -> bool:
    setting = judged.setting(judged.recommended)
    return device_of(judged) == "cpu" or bool(setting and setting.device == "cpu")


def _against(other: Member, best: Member, timed: Speed, on_cpu: Collection[str]) -> str:
    if other.unusable:
        return f"the environment {other.name} cannot be tested"
    if other.verdict == "none":
        return f"in the environment {other.name} no setting gives correct results"
    if not other.setting:
        return f"the environment {other.name} has no verdict"
    on = " on the CPU" if other.name in on_cpu and best.name not in on_cpu else ""
    under = f"the environment {other.name} with {other.setting}{on}"
    if best.name not in timed.seconds or other.name not in timed.seconds:
        return f"speed was not compared with {under}"
    if not timed.comparable(best.name, other.name):
        return f"compared with {under}: {too_noisy(timed.noise(best.name, other.name))}"
    if timed.level(best.name, other.name):
        return f"speed is the same as {under} (difference within noise)"
    return f"time is {timed.seconds[best.name] / timed.seconds[other.name]:.2f}x of {under}"
