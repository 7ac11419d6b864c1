"""Several Python environments of one run: each judged by itself, then one recommended, with what it costs
against the others."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Callable, Optional

from rocmprobe.judge.assessment import by_severity, device_of, of_driver
from rocmprobe.judge.recommendation.recommend import dtypes_asked
from rocmprobe.judge.recommendation.speed import Speed, speed, too_noisy
from rocmprobe.model.results import VERDICTS, Environment, Finding, Outcome, Recommendation, Results, Setting


def judge_environments(results: Results, judge_one: Callable[[Results], Results]) -> Results:
    """``results`` with the answers of ``judge_one`` for each environment in which something was asked, and
    the recommendation over all of them."""
    judged = {each.name: judge_one(results.of(each)) for each in results.environments if not each.unusable}
    dtype, purpose = _asked(results, judged)
    timed = _speed(results, judged, dtype, purpose)
    environments = tuple(_with_answers(each, judged.get(each.name), timed) for each in results.environments)
    best = _best(environments, judged, timed)
    common = _common([each.findings for each in judged.values()])
    findings = [
        *common,
        *_own(judged, common),
        *(_unusable(results, each) for each in environments if each.unusable),
    ]
    marked = {outcome.id: outcome for each in judged.values() for outcome in each.outcomes}
    first = next(iter(judged.values()), results)
    on_cpu = {name for name, each in judged.items() if _on_cpu(each)}
    return replace(
        results,
        outcomes=tuple(marked.get(outcome.id, outcome) for outcome in results.outcomes),
        findings=by_severity(findings),
        recommendation=_over_all(results, environments, best, timed, on_cpu),
        environments=environments,
        estimate=best.estimate if best else first.estimate,
        step_times=best.step_times if best else first.step_times,
    )


def _asked(results: Results, judged: Mapping[str, Results]) -> tuple[str, str]:
    """The dtype and the purpose that environments are compared for."""
    purpose = "inference" if results.options.get("purpose") == "inference" else "training"
    with_outcomes = next((each for each in judged.values() if each.outcomes), None)
    return (dtypes_asked(of_driver(with_outcomes))[0] if with_outcomes else "float32"), purpose


def _speed(results: Results, judged: Mapping[str, Results], dtype: str, purpose: str) -> Speed:
    """How fast each environment is under the setting recommended for it, over the problems that all of them
    were timed on. What the yardsticks of one device differ by counts as noise, as within a run: it may be the
    machine's load as well as the torch."""
    settings: list[Setting] = []
    outcomes: list[Outcome] = []
    devices = set()
    for name, each in judged.items():
        setting = _setting(each)
        if setting is None:
            continue
        device = device_of(each)
        devices.add(device)
        settings.append(replace(setting, name=name))
        outcomes += [
            replace(outcome, setting=name, device="any")
            for outcome in each.outcomes
            if outcome.setting == setting.name and outcome.device == device
        ]
    if not outcomes:
        return Speed({}, {}, 1.0)
    found = speed(
        replace(results, environments=(), settings=tuple(settings), outcomes=tuple(outcomes)),
        settings,
        dtype,
        purpose,
    )
    return found if len(devices) == 1 else replace(found, drift=1.0)


def _setting(judged: Results) -> Optional[Setting]:
    name = judged.recommendation.configuration.setting if judged.recommendation else None
    return next((each for each in judged.settings if name and each.name == name), None)


def _with_answers(environment: Environment, judged: Optional[Results], timed: Speed) -> Environment:
    if judged is None:
        return environment
    found = judged.recommendation
    if found and found.configuration.setting:
        found = replace(found, configuration=replace(found.configuration, environment=environment.name))
    return replace(
        environment,
        recommendation=found,
        estimate=judged.estimate,
        step_times=judged.step_times,
        seconds=timed.seconds.get(environment.name),
    )


def _best(found: Sequence[Environment], judged: Mapping[str, Results], timed: Speed) -> Optional[Environment]:
    """The fastest one that has a right setting, and of those that are level with it the one that needs the
    smallest change. The CPU comes last, as among settings: a torch without GPUs may have it, too."""

    def verdict(each: Environment) -> str:
        return each.recommendation.verdict if each.recommendation else "none"

    right = [each for each in found if each.name in judged and _setting(judged[each.name])]
    right = [each for each in right if not _on_cpu(judged[each.name])] or right
    fastest = min(right, key=lambda each: timed.seconds.get(each.name, math.inf), default=None)
    if fastest and fastest.name in timed.seconds:
        right = [each for each in right if timed.level(each.name, fastest.name)]
    return min(right, key=lambda each: VERDICTS.index(verdict(each)), default=None)


def _on_cpu(judged: Results) -> bool:
    """Whether what is recommended in an environment computes on the CPU."""
    setting = _setting(judged)
    return device_of(judged) == "cpu" or bool(setting and setting.device == "cpu")


def _common(found: Sequence[tuple[Finding, ...]]) -> tuple[Finding, ...]:
    """What is found alike in every environment, which is the machine's."""
    first, *others = found or [()]
    return tuple(finding for finding in first if others and all(finding in other for other in others))


def _own(judged: Mapping[str, Results], common: Sequence[Finding]) -> list[Finding]:
    return [
        replace(finding, environment=name)
        for name, each in judged.items()
        for finding in each.findings
        if finding not in common
    ]


def _unusable(results: Results, environment: Environment) -> Finding:
    machine = results.of(environment).machine
    cause, advice = "unknown", "Name an interpreter that has torch, or leave this one out."
    # One that was not looked at has no facts of its own.
    if environment.facts and machine.value("torch.version"):
        advice = "Take --device auto, which tests its torch on the device that it has, or leave this one out."
        if machine.amd_gpus and machine.value("torch.kind") != "rocm":
            cause = "wrong-torch-build"
            advice += " For the GPU, install a ROCm build there: `rocmprobe install` prints the commands."
    return Finding(
        "environment-unusable", "warning", cause, "torch-build",
        f"The environment {environment.name} cannot be tested",
        (f"{environment.python}: {environment.unusable}",), advice, environment.name,
    )  # fmt: skip


def _over_all(
    results: Results,
    environments: Sequence[Environment],
    best: Optional[Environment],
    timed: Speed,
    on_cpu: Collection[str],
) -> Optional[Recommendation]:
    found = [each.recommendation for each in environments if each.recommendation]
    if best is None or best.recommendation is None:
        if not found:
            return None
        each = "; ".join(
            f"{one.name}: {one.recommendation.sentence}" for one in environments if one.recommendation
        )
        # The verdict that rests on the most tests: "none" comes before those of what was not tested.
        gravest = min(found, key=lambda one: VERDICTS.index(one.verdict))
        heading = "No environment has a safe configuration. " if gravest.verdict == "none" else ""
        return replace(gravest, sentence=f"{heading}{each}")
    own = best.recommendation
    torch = results.of(best).machine.value("torch.version")
    with_torch = f" (torch {torch})" if torch else ""
    where = " on the CPU" if best.name in on_cpu and len(on_cpu) < len(found) else ""
    against = [_against(each, best, timed, on_cpu) for each in environments if each is not best]
    return replace(
        own,
        sentence=f"Use the environment {best.name}{with_torch}{where}. {own.sentence}",
        cost="; ".join(filter(None, [own.cost, *against])),
    )


def _against(other: Environment, best: Environment, timed: Speed, on_cpu: Collection[str]) -> str:
    """What the recommended environment costs against another one."""
    if other.unusable:
        return f"the environment {other.name} cannot be tested"
    if other.recommendation is None or other.recommendation.verdict == "none":
        return f"in the environment {other.name} no setting is right"
    if other.recommendation.configuration.setting is None:
        return f"the environment {other.name} is not judged"
    setting = other.recommendation.configuration.setting
    on = " on the CPU" if other.name in on_cpu and best.name not in on_cpu else ""
    under = f"that of the environment {other.name} under {setting}{on}"
    if best.name not in timed.seconds or other.name not in timed.seconds:
        return f"against {under} it was not timed"
    if not timed.comparable(best.name, other.name):
        return f"against {under}, {too_noisy(timed.noise(best.name, other.name))}"
    if timed.level(best.name, other.name):
        return f"its time is level with {under}: what they differ by is within the noise"
    return f"its time is {timed.seconds[best.name] / timed.seconds[other.name]:.2f} times {under}"
