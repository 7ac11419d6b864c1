"""Speed of training in each dtype, measured with small networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Any, Optional

from rocmprobe.checks import MODELS
from rocmprobe.judge.assessment import device_of
from rocmprobe.judge.noise import SAME_TIME, Ratio, Seconds, ratio, seconds
from rocmprobe.model.results import Outcome, Results

#: The dtype to which the other dtypes are compared.
BASE = "float32"
_HALF = ("float16", "bfloat16")


@dataclass(frozen=True)
class DtypeSpeed:
    """Speed of training in one dtype under its recommended setting.

    ``ratios`` maps networks to step time relative to float32. ``verdict`` is "faster", "slower", "same" or
    "too noisy", and "" for float32 itself.
    """

    dtype: str
    setting: str
    ratios: Mapping[str, Ratio] = field(default_factory=dict)
    verdict: str = ""

    def time_over(self, networks: frozenset[str]) -> float:
        """Return the geometric mean of ``ratios`` over ``networks``."""
        values = [each.value for name, each in self.ratios.items() if name in networks]
        return geometric_mean(values) if values else 1.0


def dtype_speeds(results: Results, per: Mapping[str, Mapping[str, Any]]) -> tuple[DtypeSpeed, ...]:
    """Return the training speed in float32 and in each half-precision dtype with a correct setting.

    ``per`` is ``Recommendation.per``, keyed by "dtype/purpose". Return () for a simulated machine.
    """
    if results.simulated:
        return ()
    about = device_of(results)
    timed: dict[tuple[str, str], dict[str, Outcome]] = {}
    for outcome in results.outcomes:
        if outcome.check in MODELS and outcome.works and outcome.device == about:
            timed.setdefault((outcome.dtype, outcome.setting), {})[outcome.check] = outcome
    chosen = {
        dtype: str(answer["setting"])
        for key, answer in per.items()
        if key.endswith("/training") and answer.get("setting")
        for dtype in (key.partition("/")[0],)
    }
    base = _steps(timed.get((BASE, chosen.get(BASE, "")), {}))
    if not base:
        return ()
    found = [_speed(BASE, chosen[BASE], timed, base)]
    for dtype in (each for each in _HALF if each in chosen):
        setting = chosen[dtype]
        if set(base) & set(_steps(timed.get((dtype, setting), {}))):
            found.append(_speed(dtype, setting, timed, base))
    return tuple(found)


def fastest(found: tuple[DtypeSpeed, ...]) -> Optional[DtypeSpeed]:
    """Return the fastest dtype, or None if fewer than two dtypes were timed."""
    if len(found) < 2:
        return None
    faster = [each for each in found if each.verdict == "faster"] or [found[0]]
    # Networks can lack times in some dtypes, so compare only networks that were timed in all dtypes.
    shared = frozenset.intersection(*(frozenset(each.ratios) for each in faster))
    return min(faster, key=lambda each: each.time_over(shared or frozenset(each.ratios)))


def sentences(results: Results, found: tuple[DtypeSpeed, ...]) -> str:
    """Return sentences about the step time in each dtype and about the fastest dtype."""
    best = fastest(found)
    if best is None:
        return ""
    others = [each for each in found if each.dtype != BASE]
    known = [f"{_span(each)} in {each.dtype}" for each in others if each.verdict != "too noisy"]
    noisy = [each.dtype for each in others if each.verdict == "too noisy"]
    parts = [f"Against {BASE}, a training step takes {' and '.join(known)}."] if known else []
    parts += [f"The times in {' and '.join(noisy)} are too noisy to compare with {BASE}."] if noisy else []
    here = "CPU" if device_of(results) == "cpu" else "card"
    return f" {' '.join(parts)} The fastest correct dtype on this {here} is {best.dtype}."


def _span(each: DtypeSpeed) -> str:
    if each.verdict == "same":
        return "as long"
    least, most = (f"{pick(ratio.value for ratio in each.ratios.values()):.2g}" for pick in (min, max))
    count = f"{len(each.ratios)} network{'s' if len(each.ratios) > 1 else ''}"
    return f"{least if least == most else f'{least} to {most}'} times as long ({count})"


def _speed(
    dtype: str, setting: str, timed: Mapping[tuple[str, str], Mapping[str, Outcome]],
    base: Mapping[str, Seconds],
) -> DtypeSpeed:  # fmt: skip
    own = _steps(timed[dtype, setting])
    if dtype == BASE:
        return DtypeSpeed(dtype, setting)
    ratios = {
        network.removeprefix("train-"): ratio(own[network], base[network])
        for network in own
        if network in base
    }
    return DtypeSpeed(dtype, setting, ratios, _verdict(list(ratios.values())))


def _verdict(ratios: list[Ratio]) -> str:
    words = [each.verdict for each in ratios]
    if 2 * words.count("too noisy") > len(words):
        return "too noisy"
    mean = geometric_mean([each.value for each in ratios])
    if 1 / SAME_TIME <= mean <= SAME_TIME:
        return "same"
    return "slower" if mean > 1 else "faster"


def _steps(outcomes: Mapping[str, Outcome]) -> dict[str, Seconds]:
    found = {network: seconds(outcome.timings, "step") for network, outcome in outcomes.items()}
    return {network: each for network, each in found.items() if each is not None}
