"""The recommendation: right first, then fast, then little changed."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Optional

from rocmprobe.judge.blame import library
from rocmprobe.judge.comparison import SAME_TIME, Seconds, ratio
from rocmprobe.judge.configuration import configuration
from rocmprobe.judge.evidence import (
    NATIVE,
    Standing,
    broken,
    driver_of,
    dtypes,
    failed,
    of_driver,
    quoted,
    standing,
    times,
)
from rocmprobe.judge.step_time import shapes_of
from rocmprobe.model import VERDICTS, Configuration, Recommendation, Results, Setting
from rocmprobe.problems import parse_problem

#: A machine that works as it comes is left as it is, unless its best times (p10) are this many times
#: the worst (p90) of a change.
WORTH_A_CHANGE = 1.5


def recommend(results: Results) -> Optional[Recommendation]:
    """The ranked answer for the run's purpose and one dtype, with those for every dtype and purpose: for
    float32, or the dtype in which a program that the run is about computes the most."""
    if not results.outcomes:
        return None
    results = of_driver(results)
    purpose = "inference" if results.options.get("purpose") == "inference" else "training"
    asked = _by_weight(results, dtypes(results)) or ("float32",)
    ranked = _ranked(results, asked[0], purpose)
    best = next((each for each in ranked if each.right), None)
    seconds = _times(results, ranked, asked[0], purpose)
    verdict = best.setting.verdict if best else "none"
    purposes = ("inference",) if purpose == "inference" else ("training", "inference")
    per = {f"{dtype}/{each}": _answer(results, dtype, each) for dtype in asked for each in purposes}
    return Recommendation(
        verdict=verdict,
        sentence=_sentence(results, best, ranked, asked[0]) + _other_dtypes(per, asked, purpose),
        configuration=configuration(results, best) if best else Configuration(),
        per=per,
        alternatives=tuple(_alternative(each, seconds) for each in ranked if each is not best),
        cost=_cost(results, best, asked[0], seconds, _spreads(results, ranked, asked[0], purpose)),
        confidence=_confidence(results, best),
        verify=f"rocmprobe run --verify {shlex.quote(_path(results))}" if best else "",
    )


def _by_weight(results: Results, found: tuple[str, ...]) -> tuple[str, ...]:
    """The dtypes by the arithmetic that the user's program has in them, the most first."""
    shapes = shapes_of(results)
    flops: Counter[str] = Counter()
    for each in shapes.problems if shapes else ():
        flops[parse_problem(each.problem).dtype] += each.flops
    return tuple(sorted(found, key=lambda dtype: -flops[dtype]))


def _path(results: Results) -> str:
    """Where the run was told to leave its results, as the user named it."""
    return str(PurePosixPath(str(results.options.get("folder", "."))) / "results.json")


def _ranked(results: Results, dtype: str, purpose: str) -> list[Standing]:
    """Every setting that was asked: the best, the other right ones by speed, then those that fail."""
    found = [standing(results, setting, dtype, purpose) for setting in results.settings]
    found = [each for each in found if each.counted]
    right = [each for each in found if each.right]
    if not right:
        return found
    best = _best(results, right, dtype, purpose)
    seconds = _times(results, right, dtype, purpose)
    others = sorted(
        (each for each in right if each is not best),
        key=lambda each: (
            each.setting.verdict == "cpu", seconds.get(each.setting.name, math.inf), _change(each)
        ),
    )  # fmt: skip
    return [best, *others, *(each for each in found if not each.right)]


def _best(results: Results, right: list[Standing], dtype: str, purpose: str) -> Standing:
    """The CPU comes last whatever its speed: whoever has a GPU wants to use it. Where some settings were
    timed and others could not be, one that was timed wins. On a simulated machine native speed is another
    library's, so there a native setting that is right is not outrun."""
    on_device = [each for each in right if each.setting.verdict != "cpu"] or right
    unchanged = next((each for each in on_device if each.setting.verdict == "native"), None)
    if unchanged and not _change_pays(results, unchanged, on_device, dtype, purpose):
        return unchanged
    natives = [each for each in on_device if each.setting.verdict in NATIVE]
    if results.simulated and natives:
        on_device = natives
    seconds = _times(results, on_device, dtype, purpose)
    if seconds:
        limit = SAME_TIME * min(seconds.values())
        on_device = [each for each in on_device if seconds.get(each.setting.name, math.inf) <= limit]
    return min(on_device, key=_change)


def _change_pays(
    results: Results, unchanged: Standing, others: list[Standing], dtype: str, purpose: str
) -> bool:
    """Whether some other setting is so much faster that the spread of the times cannot explain it.

    Never on a simulated machine: there native speed is that of another library on another device.
    """
    names = [each.setting.name for each in others]
    own = times(results, names, dtype, purpose, "_p10").get(unchanged.setting.name)
    theirs = times(results, names, dtype, purpose, "_p90")
    if results.simulated or own is None:
        return False
    return any(own > WORTH_A_CHANGE * seconds for seconds in theirs.values())


def _times(
    results: Results, found: list[Standing], dtype: str, purpose: str, quantile: str = ""
) -> dict[str, float]:
    """Seconds by setting, of those that are right. Where settings run the very same convolutions, what
    their times differ by is noise, and the smallest stands for all."""
    right = [each.setting for each in found if each.right]
    seconds = times(results, [setting.name for setting in right], dtype, purpose, quantile)
    alike = {setting.name: _alike(results, setting) for setting in right if setting.name in seconds}
    return {
        name: min(seconds[other] for other in alike if alike[other] == kind) for name, kind in alike.items()
    }


def _spreads(results: Results, found: list[Standing], dtype: str, purpose: str) -> dict[str, Seconds]:
    """The same with the spread, of those settings that have one."""
    median, p10, p90 = (_times(results, found, dtype, purpose, end) for end in ("", "_p10", "_p90"))
    return {
        name: Seconds(median[name], p10[name], p90[name]) for name in median if name in p10 and name in p90
    }


def _alike(results: Results, setting: Setting) -> str:
    """What the convolutions of a setting share with those of another: the bypass is one code, and so is
    the CPU's library that stands in for a simulated machine's."""
    if setting.bypass:
        return "bypass"
    return "native" if results.simulated and setting.verdict in NATIVE else setting.name


def _change(each: Standing) -> tuple[int, int]:
    """How much a setting changes: what kind of change, then how many switches."""
    setting = each.setting
    switches = len(setting.env) + len(setting.torch) + setting.bypass + (not setting.vendor_library)
    return VERDICTS.index(setting.verdict), switches


def _answer(results: Results, dtype: str, purpose: str) -> dict[str, Any]:
    best = next((each for each in _ranked(results, dtype, purpose) if each.right), None)
    if best is None:
        return {"verdict": "none", "setting": None, "env": {}}
    return {"verdict": best.setting.verdict, "setting": best.setting.name, "env": dict(best.setting.env)}


def _sentence(results: Results, best: Optional[Standing], ranked: list[Standing], dtype: str) -> str:
    name = library(results)
    without = driver_of(results) == "capi"
    if best is None and without:
        return _none_without_torch(results, ranked, dtype)
    if best is None:
        return f"No safe configuration was found: {dtype} convolution did not hold under any setting tried."
    if best.setting.verdict == "native" and any(
        each.setting.inherit_environment and failed(each.against) for each in ranked
    ):
        return (
            f"Native convolution works: {name} is right on all {dtype} problems checked, but only with a "
            "clean environment and empty databases. With your own it fails: see the findings."
        )
    unchanged = next((each for each in ranked if each.right and each.setting.verdict == "native"), None)
    faster = f" {name} is right too as it comes, but slower." if unchanged and unchanged is not best else ""
    as_it_comes = next((each for each in ranked if each.setting.verdict == "native"), None)
    fails = _fails(as_it_comes, dtype, name) if as_it_comes and as_it_comes is not best else ""
    texts = {
        "native": f"Native convolution works: {name} is right on all {dtype} problems checked. "
        "Change nothing.",
        "native-with-settings": _with_settings(name, best.setting),
        "vendor-off": f"Switch {name} off: PyTorch's own kernels are right on all {dtype} problems checked.",
        "bypass": f"Use rocmprobe's bypass: it is right on all {dtype} problems checked and needs GEMM only.",
        "cpu": f"Use the CPU: of all that was tried, it alone was right on all {dtype} problems checked.",
    }
    told = fails + texts[best.setting.verdict] + faster
    return f"{told} Asked of {name} itself, without PyTorch." if without else told


def _fails(as_it_comes: Standing, dtype: str, name: str) -> str:
    """What fails in the library as it comes: convolution, or else what stands beside it."""
    if broken(as_it_comes):
        return f"Native {dtype} convolution fails in {name}. "
    others = dict.fromkeys(outcome.check for outcome in failed(as_it_comes.against))
    if "problem-matrix" in others:
        return f"Native {dtype} convolution holds for common problems, for others it fails in {name}. "
    words = " and ".join(check.replace("-", " ") for check in others)
    return f"Native {dtype} convolution holds, {words} with {name} does not. " if words else ""


def _none_without_torch(results: Results, ranked: list[Standing], dtype: str) -> str:
    """What was asked, and what only a torch can add."""
    name, asked = library(results), f"{len(ranked)} setting(s)"
    convolved = [each for each in ranked if broken(each)]
    what = f"{dtype} convolution" if convolved else "batch norm"
    return (
        f"No safe configuration was found: {what} did not hold in {name} itself under any of {asked}. "
        "PyTorch was not there to be asked: switching the library off and the bypass are tried with a torch."
    )


def _with_settings(name: str, setting: Setting) -> str:
    if not (setting.derived and setting.env):
        return f"{name} is right with the setting “{setting.name}”."
    switches = " ".join(f"{variable}={value}" for variable, value in setting.env.items())
    return f"{name} is right with its faulty solvers switched off: {switches}."


def _other_dtypes(per: Mapping[str, Mapping[str, Any]], asked: tuple[str, ...], purpose: str) -> str:
    """What differs for the other dtypes, if anything does."""
    parts = []
    first = per[f"{asked[0]}/{purpose}"]
    for dtype in asked[1:]:
        answer = per[f"{dtype}/{purpose}"]
        if answer["setting"] == first["setting"]:
            continue
        if answer["verdict"] == "native-with-settings":
            switches = " ".join(f"{name}={value}" for name, value in answer["env"].items())
            parts.append(f" For {dtype}, set {switches or answer['setting']}.")
        elif answer["verdict"] == "none":
            parts.append(f" No configuration was found right for {dtype}.")
        else:
            parts.append(f" For {dtype}, use the setting “{answer['setting']}”.")
    return "".join(parts)


def _alternative(each: Standing, seconds: Mapping[str, float]) -> dict[str, Any]:
    return {
        "setting": each.setting.name,
        "verdict": each.setting.verdict,
        "right": each.right,
        "seconds": seconds.get(each.setting.name),
        "reason": each.setting.reason if each.right else _objection(each),
    }


def _objection(each: Standing) -> str:
    if each.against:
        return quoted(each.against, 1)[0]
    return f"not asked about what fails elsewhere: {quoted(each.unproven, 1)[0]}"


def _cost(
    results: Results,
    best: Optional[Standing],
    dtype: str,
    seconds: Mapping[str, float],
    spreads: Mapping[str, Seconds],
) -> str:
    """What the choice costs in itself, and its time against that of the other kinds of configuration."""
    if best is None:
        return ""
    own = best.setting.name
    if own not in seconds:
        return "; ".join(filter(None, [best.setting.cost, "speed was not measured"]))
    quickest: dict[str, str] = {}
    for setting in results.settings:
        if setting.name in seconds and setting.verdict not in (best.setting.verdict, "cpu"):
            rival = quickest.get(setting.verdict, setting.name)
            quickest[setting.verdict] = min(rival, setting.name, key=seconds.__getitem__)
    compared = []
    for verdict, other in quickest.items():
        spread = own in spreads and other in spreads
        if spread and ratio(spreads[own], spreads[other]).told == "too noisy":
            compared.append(f"too noisy to be told from that of {verdict}")
        else:
            compared.append(f"{seconds[own] / seconds[other]:.2f} times that of {verdict}")
    where = " on the CPU that stands in for the GPU" if results.simulated else ""
    program = f"the {dtype} convolutions of your program"
    over = program if results.options.get("shapes") else "the throughput problems"
    time = f"its time over {over}{where} is {', '.join(compared)}" if compared else ""
    return "; ".join(filter(None, [best.setting.cost, time]))


def _confidence(results: Results, best: Optional[Standing]) -> str:
    """What the answer rests on, in counts, and what it does not rest on."""
    missing = sum(outcome.state in ("aborted", "probe-error") for outcome in results.outcomes)
    rest = f"; {missing} question(s) of the run were not answered" if missing else ""
    if results.simulated:
        rest += "; simulated: not run on the GPU it is about"
    if results.partial:
        rest += "; the run did not come to its end"
    if best is None:
        return f"{len(results.outcomes)} outcomes{rest}"
    problems = {outcome.problem for outcome in best.counted if outcome.problem}
    return f"right in all {len(best.counted)} outcomes asked of it, over {len(problems)} problems{rest}"
