"""Text of the recommendation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from rocmprobe.judge.assessment import (
    TRAINING,
    Assessment,
    convolutions,
    failed,
    failed_convolutions,
    owed_to_the_user,
)
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.primitives import layer_outcomes
from rocmprobe.judge.recommendation.configuration import chosen_gpu, isa_override
from rocmprobe.judge.recommendation.untested import lowest_failure_sentence
from rocmprobe.knowledge.layers import OPTIONS, options_for
from rocmprobe.model.results import Setting
from rocmprobe.text.plain_text import joined

#: Maximum number of settings in a list of the settings under which convolution worked.
_NAMED = 4


def sentence(run: Evidence, best: Optional[Assessment], ranked: list[Assessment], dtype: str) -> str:
    """Return sentences that say how to run convolutions of ``dtype``, and what fails by default."""
    name = run.library
    if best is None:
        return f"No safe configuration was found: {_held(ranked, dtype)}{_why(run, ranked)}"
    if owed_to_the_user(best, ranked):
        return (
            f"Native convolution works here, but only with your own environment and databases. With them, "
            f"{name} gives correct results on all {dtype} problems tested; in a clean environment with empty "
            "databases it fails. Keep them: see the findings. This does not help on another machine."
        )
    if best.setting.unchanged and any(
        each.setting.inherit_environment and failed(each.against) for each in ranked
    ):
        return (
            f"Native convolution works: {name} gives correct results on all {dtype} problems tested, but "
            "only with a clean environment and empty databases. With your own environment it fails: see the "
            "findings."
        )
    native = [each for each in ranked if each.setting.unchanged and not owed_to_the_user(each, ranked)]
    unchanged = next((each for each in native if each.right), None)
    slower = unchanged and unchanged is not best
    faster = f" {name} with its defaults gives correct results too, but is slower." if slower else ""
    as_it_comes = next(iter(native), None)
    fails = _fails(run, as_it_comes, dtype, name) if as_it_comes and as_it_comes is not best else ""
    texts = {
        "native": f"Native convolution works: {name} gives correct results on all {dtype} problems tested."
        + _nothing_but(run, name),
        "native-with-settings": _with_settings(name, best.setting),
        "vendor-off": f"Switch {name} off: PyTorch's own kernels give correct results on all {dtype} "
        "problems tested.",
        "bypass": f"Use rocmprobe's bypass: it gives correct results on all {dtype} problems tested.",
        "cpu": f"Use the CPU: only the CPU gave correct results on all {dtype} problems tested.",
    }
    if best.setting.pytorch_layers:
        return fails + _by_layer(run, best.setting, dtype) + faster
    return fails + texts[best.setting.verdict] + faster


def _rests_on(run: Evidence) -> str:
    override = " ".join(f"{name}={value}" for name, value in isa_override(run.results).items())
    return f": it needs {override}, which is set here" if override else ""


def _held(ranked: list[Assessment], dtype: str) -> str:
    what = f"{dtype} convolution"
    convolved = [each for each in ranked if _answered(each)]
    if not convolved:
        blocked = any(convolutions(each.counted) for each in ranked)
        return f"{what} was not tested{', because a test that it depends on fails' if blocked else ''}."
    holds = [each for each in convolved if not failed_convolutions(each)]
    asked = f"{len(convolved)} tested setting(s)"
    if not holds:
        return f"{what} failed under all {asked}."
    names = ", ".join(each.setting.name for each in holds[:_NAMED]) + (", ..." if holds[_NAMED:] else "")
    checks = dict.fromkeys(each.check for held in holds for each in failed((*held.against, *held.unproven)))
    others = joined([check.replace("-", " ") for check in checks])
    but = f", but {others} failed" if others else ""
    return f"{what} worked under {len(holds)} of {asked} ({names}){but}."


def _answered(each: Assessment) -> bool:
    return any(outcome.learned for outcome in convolutions(each.counted))


def _why(run: Evidence, ranked: list[Assessment]) -> str:
    tried = any(each.setting.verdict == "cpu" for each in ranked) or not any(map(_answered, ranked))
    return f" {lowest_failure_sentence(run)}{'' if tried else ' The CPU was not tested.'}"


def _fails(run: Evidence, as_it_comes: Assessment, dtype: str, name: str) -> str:
    if failed_convolutions(as_it_comes):
        return f"Native {dtype} convolution fails in {name}. "
    # If ``as_it_comes`` is correct, another setting is recommended only because it is faster. Failures of
    # batch norm are then not the reason.
    counts = not as_it_comes.right
    beside = layer_outcomes(run, as_it_comes.setting.name)["batch norm"] if counts else ()
    others = dict.fromkeys(outcome.check for outcome in failed((*beside, *as_it_comes.against)))
    if "problem-matrix" in others:
        return f"Native {dtype} convolution works for common problems, but fails for others in {name}. "
    words = " and ".join(check.replace("-", " ") for check in others)
    fail = "fails" if len(others) == 1 else "fail"
    return f"Native {dtype} convolution works, but {words} {fail} with {name}. " if words else ""


def _by_layer(run: Evidence, setting: Setting, dtype: str) -> str:
    switches = [f"{variable}={value}" for variable, value in setting.env.items()]
    switches += [f"torch.backends.{flag} = {value}" for flag, value in setting.torch.items()]
    dead = [words for words, outcomes in layer_outcomes(run, setting.name).items() if failed(outcomes)]
    others = [OPTIONS[option] for option in setting.pytorch_layers if option not in options_for(dead)]
    parts = [f"Run convolution natively{f' with {chr(32).join(switches)}' if switches else ''}"]
    parts += [f"{joined(others)} with PyTorch's own kernels"] if others else []
    also = f" {joined(dead)} fail{'s' if len(dead) == 1 else ''} without {run.library}, too." if dead else ""
    between = "; " if len(others) > 1 else ", "
    return f"{between.join(parts)}: all {dtype} problems tested give correct results.{also}"


def _nothing_but(run: Evidence, name: str) -> str:
    asked = layer_outcomes(run, "default").items()
    training = run.results.purpose == "training"
    dead = [words for words, outcomes in asked if failed(outcomes) and (training or words != "batch norm")]
    if not dead:
        chosen = " ".join(f"{name}={value}" for name, value in chosen_gpu(run.results).items())
        if chosen:
            return f" Set {chosen}, so that programs use the GPU that was tested{_rests_on(run)}."
        if run.results.partial:
            return ""
        if training and not any(outcome.check in TRAINING for outcome in run.outcomes):
            return " Batch norm and a training step were not tested."
        return f" Change nothing{_rests_on(run)}."
    fail = f"{joined(dead)} fail{'s' if len(dead) == 1 else ''}"
    return f" Convolution needs no change, but {fail} in {name}: see the configuration."


def _with_settings(name: str, setting: Setting) -> str:
    if not (setting.derived and setting.env):
        return f"{name} gives correct results with the setting “{setting.name}”."
    switches = " ".join(f"{variable}={value}" for variable, value in setting.env.items())
    return f"{name} gives correct results with its faulty solvers switched off: {switches}."


def other_dtypes(per: Mapping[str, Mapping[str, Any]], asked: tuple[str, ...], purpose: str) -> str:
    """Return a sentence for each dtype in ``asked`` that needs another setting than the first dtype."""
    parts = []
    for dtype, answer in differing(per, asked, purpose).items():
        if answer["verdict"] == "native-with-settings":
            switches = " ".join(f"{name}={value}" for name, value in answer["env"].items())
            parts.append(f" For {dtype}, set {switches or answer['setting']}.")
        elif answer["verdict"] == "none":
            parts.append(f" No configuration gives correct results in {dtype}.")
        elif answer["setting"] is None:
            parts.append(f" Too little was tested to recommend a configuration for {dtype}.")
        else:
            parts.append(f" For {dtype}, use the setting “{answer['setting']}”.")
    return "".join(parts)


def differing(
    per: Mapping[str, Mapping[str, Any]], asked: tuple[str, ...], purpose: str
) -> dict[str, Mapping[str, Any]]:
    """Return the entry of ``per`` for each dtype whose setting differs from that of ``asked[0]``."""
    answers = {dtype: per[f"{dtype}/{purpose}"] for dtype in asked}
    first = answers[asked[0]]["setting"]
    return {dtype: answer for dtype, answer in answers.items() if answer["setting"] != first}
