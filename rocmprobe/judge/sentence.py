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
from rocmprobe.judge.primitives import joined, layers_asked
from rocmprobe.layers import OPTIONS, options_for
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
    if best.setting.unchanged and any(
        each.setting.inherit_environment and failed(each.against) for each in ranked
    ):
        return (
            f"Native convolution works: {name} is right on all {dtype} problems checked, but only with a "
            "clean environment and empty databases. With your own it fails: see the findings."
        )
    unchanged = next((each for each in ranked if each.right and each.setting.unchanged), None)
    lost_as_it_comes = _lost(results, unchanged) if unchanged and without else ""
    slower = unchanged and unchanged is not best and not lost_as_it_comes
    faster = f" {name} is right too as it comes, but slower." if slower else ""
    as_it_comes = next((each for each in ranked if each.setting.unchanged), None)
    fails = _fails(results, as_it_comes, dtype, name) if as_it_comes and as_it_comes is not best else ""
    lost = _lost(results, best) if without else ""
    texts = {
        "native": f"Native convolution works: {name} is right on all {dtype} problems checked."
        + ("" if lost else _nothing_but(results, name)),
        "native-with-settings": _with_settings(name, best.setting),
        "vendor-off": f"Switch {name} off: PyTorch's own kernels are right on all {dtype} problems checked.",
        "bypass": f"Use rocmprobe's bypass: it is right on all {dtype} problems checked and needs GEMM only.",
        "cpu": f"Use the CPU: of all that was tried, it alone was right on all {dtype} problems checked.",
    }
    if best.setting.pytorch_layers:
        told = fails + _by_layer(results, best.setting, dtype) + faster
    else:
        told = fails + texts[best.setting.verdict] + faster
    return f"{told}{lost} Asked of {name} itself, without PyTorch." if without else told


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


def _fails(results: Results, as_it_comes: Standing, dtype: str, name: str) -> str:
    """What fails in the library as it comes: convolution, or else what stands beside it."""
    if broken(as_it_comes):
        return f"Native {dtype} convolution fails in {name}. "
    without = driver_of(results) == "capi"
    # What is right for the purpose, and only slower, is not said to fail.
    counts = without or not as_it_comes.right
    beside = layers_asked(results, as_it_comes.setting.name)["batch norm"] if counts else ()
    others = dict.fromkeys(outcome.check for outcome in failed((*beside, *as_it_comes.against)))
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


def _by_layer(results: Results, setting: Setting, dtype: str) -> str:
    """What computes convolution, what the other layers, and which of these fail so as well."""
    switches = [f"{variable}={value}" for variable, value in setting.env.items()]
    switches += [f"torch.backends.{flag} = {value}" for flag, value in setting.torch.items()]
    dead = [words for words, outcomes in layers_asked(results, setting.name).items() if failed(outcomes)]
    others = [OPTIONS[option] for option in setting.pytorch_layers if option not in options_for(dead)]
    parts = [f"Convolution native{f' with {chr(32).join(switches)}' if switches else ''}"]
    parts += [f"{joined(others)} by PyTorch's own kernels"] if others else []
    also = (
        f" {joined(dead)} fail{'s' if len(dead) == 1 else ''} without {library(results)}, too."
        if dead
        else ""
    )
    between = "; " if len(others) > 1 else ", "
    return f"{between.join(parts)}: all {dtype} problems checked come out right.{also}"


def _nothing_but(results: Results, name: str) -> str:
    """That nothing has to change, or nothing but for layers that are no convolution."""
    asked = layers_asked(results, "default").items()
    training = results.options.get("purpose") != "inference"
    dead = [words for words, outcomes in asked if failed(outcomes) and (training or words != "batch norm")]
    if not dead:
        return f" Change nothing{_rests_on(results)}."
    fail = f"{joined(dead)} fail{'s' if len(dead) == 1 else ''}"
    return f" Nothing has to change for it, but {fail} in {name}: see the configuration."


def _lost(results: Results, best: Standing) -> str:
    """That batch norm, which nothing else computes without PyTorch, fails in the library all the same."""
    if not failed(layers_asked(results, best.setting.name)["batch norm"]):
        return ""
    needed = "PyTorch's own kernels for it, which were not there to be asked"
    return f" Batch norm fails there: a model that has it needs {needed}."


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
