"""The recommendation in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from rocmprobe.judge.blame import library
from rocmprobe.judge.configuration import isa_override
from rocmprobe.judge.evidence import (
    Standing,
    broken,
    device_of,
    driver_of,
    failed,
    owed_to_the_user,
    quoted,
)
from rocmprobe.model import RUNGS, Results, Setting


def sentence(results: Results, best: Optional[Standing], ranked: list[Standing], dtype: str) -> str:
    """What to do about convolutions of ``dtype``, and what fails as the machine comes."""
    name = library(results)
    without = driver_of(results) == "capi"
    if best is None and without:
        return _none_without_torch(results, ranked, dtype)
    if best is None:
        return (
            f"No safe configuration was found: {dtype} convolution did not hold under any setting tried."
            + _why(results, ranked)
        )
    if owed_to_the_user(best, ranked):
        return (
            f"Native convolution works here, but only with your own environment and databases: {name} is "
            f"right on all {dtype} problems checked with them, and fails in a clean environment with empty "
            "databases. Keep them: see the findings. It is no answer for another machine."
        )
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
        f"Change nothing{_rests_on(results)}.",
        "native-with-settings": _with_settings(name, best.setting),
        "vendor-off": f"Switch {name} off: PyTorch's own kernels are right on all {dtype} problems checked.",
        "bypass": f"Use rocmprobe's bypass: it is right on all {dtype} problems checked and needs GEMM only.",
        "cpu": f"Use the CPU: of all that was tried, it alone was right on all {dtype} problems checked.",
    }
    told = fails + texts[best.setting.verdict] + faster
    return f"{told} Asked of {name} itself, without PyTorch." if without else told


def _rests_on(results: Results) -> str:
    """What is set already and must stay so."""
    override = " ".join(f"{name}={value}" for name, value in isa_override(results).items())
    return f": it rests on {override}, which is set here" if override else ""


def _why(results: Results, ranked: list[Standing]) -> str:
    """What fails lowest on the ladder, and that the CPU was left out where it was."""
    device = device_of(results)
    lowest = sorted(
        (outcome for outcome in failed(results.outcomes) if outcome.device == device),
        key=lambda outcome: RUNGS.index(outcome.rung),
    )
    why = f" The lowest that fails is {quoted(lowest, 1)[0]}." if lowest else " Nothing could be asked."
    tried = any(each.setting.verdict == "cpu" for each in ranked)
    return why if tried else f"{why} The CPU was not tried."


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


def other_dtypes(per: Mapping[str, Mapping[str, Any]], asked: tuple[str, ...], purpose: str) -> str:
    """What differs for the dtypes after the first of ``asked``, if anything does."""
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
