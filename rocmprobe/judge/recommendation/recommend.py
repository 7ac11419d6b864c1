"""Recommendation of a run: the configuration, its cost, and the evidence for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Optional

from rocmprobe.judge.assessment import Assessment, devices_of, quoted
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.changing_sizes import quickest
from rocmprobe.judge.findings.torch_unusable import failed_imports
from rocmprobe.judge.recommendation.advice import advice, other_build
from rocmprobe.judge.recommendation.blocks import verify_command
from rocmprobe.judge.recommendation.configuration import configuration, of_setting
from rocmprobe.judge.recommendation.costs import cost_sentence, costs
from rocmprobe.judge.recommendation.coverage import confidence, confidence_level, not_covered
from rocmprobe.judge.recommendation.dtype_speed import dtype_speeds, sentences
from rocmprobe.judge.recommendation.limits import limits
from rocmprobe.judge.recommendation.ranking import ranked
from rocmprobe.judge.recommendation.speed import Speed, peaks, speed
from rocmprobe.judge.recommendation.untested import (
    about_the_cpu,
    has_convolution_outcome,
    not_judged,
    untested_gpu,
    untested_settings,
)
from rocmprobe.judge.recommendation.verdict import differing, other_dtypes, sentence
from rocmprobe.judge.times import shapes_of
from rocmprobe.knowledge.settings import title
from rocmprobe.knowledge.visible_devices import mask_for
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import NATIVE, Configuration, DeviceAnswer, Finding, Recommendation, Setting
from rocmprobe.text.plain_text import joined

#: Name and description of programs whose input sizes keep changing. The name is part of a key of
#: ``Recommendation.per``.
_CHANGING_SIZES, _IN_WORDS = "changing-sizes", "input sizes that keep changing"


def recommend(run: Evidence, findings: Sequence[Finding] = ()) -> Optional[Recommendation]:
    """Return the recommendation for the run's purpose, or None if the run has no outcomes."""
    if not run.outcomes:
        return None
    found = _recommended(run, findings)
    several = devices_of(run.results)
    if len(several) < 2:
        return found
    return replace(found, devices={device: _for_device(run, findings, device) for device in several})


def _for_device(run: Evidence, findings: Sequence[Finding], device: str) -> DeviceAnswer:
    own = tuple(outcome for outcome in run.outcomes if outcome.device == device)
    found = _recommended(Evidence(replace(run.results, outcomes=own)), findings)
    targets = run.results.options.get("targets") or ()
    target: Mapping[str, Any] = next((each for each in targets if each.get("device") == device), {})
    number = device.partition(":")[2]
    gpus = [gpu for gpu in run.machine.gpus if number and str(gpu.index.value) == number]
    return DeviceAnswer(
        found.verdict, found.sentence, found.configuration.setting, found.configuration.env,
        target.get("gpu"), bool(target.get("in_processor")), mask_for(run.machine, gpus) or "",
        found.configuration.unset,
    )  # fmt: skip


def _recommended(run: Evidence, findings: Sequence[Finding]) -> Recommendation:
    without_gpu = untested_gpu(run)
    if without_gpu:
        return replace(without_gpu, advice=advice(run, findings, unchanged=True))
    purpose = run.results.purpose
    asked = ordered_dtypes(run)
    purposes = ("inference",) if purpose == "inference" else ("training", "inference")
    rankings = {(dtype, each): ranked(run, dtype, each) for dtype in asked for each in purposes}
    order = rankings[asked[0], purpose]
    best = next((each for each in order if each.right), None)
    for dtype in asked[1:]:
        rankings[dtype, purpose] = _preferring(run, best, rankings[dtype, purpose], dtype)
    right = [each.setting for each in order if each.right]
    measured = speed(run, right, asked[0], purpose)
    memory = peaks(run, right, asked[0], purpose)
    verdict = best.setting.verdict if best else _without_a_right_setting(run, asked[0])
    per: dict[str, Mapping[str, Any]] = {
        f"{dtype}/{each}": _answer(run, ranking, dtype) for (dtype, each), ranking in rankings.items()
    }
    elsewhere = differing(per, asked, purpose)
    dtypes_elsewhere = [dtype for dtype, answer in elsewhere.items() if answer["setting"]]
    tested = {outcome.dtype for outcome in run.on_device}
    failing = limits(run, best.setting, tested - elsewhere.keys()) if best else ()
    failing_elsewhere = _limits_elsewhere(run, elsewhere)
    changing = quickest(run, asked[0], per[f"{asked[0]}/inference"]["setting"])
    if changing:
        setting = next(each for each in run.settings if each.name == changing[0].setting)
        per[f"{asked[0]}/{_CHANGING_SIZES}"] = {**_of_setting(setting), "new_size_seconds": changing[0].new}
    if verdict == "not-judged":
        text = not_judged(run, untested_settings(run, asked[0]))
    else:
        text = about_the_cpu(run) + sentence(
            run, best, order, asked[0], findings, bool(changing or elsewhere)
        )  # fmt: skip
        unnamed = [what for what in failing if what not in text]
        text += f" Failing with it: {joined(unnamed)}." if unnamed else ""
        text += other_dtypes(elsewhere, failing_elsewhere)
        if changing:
            best_size, own_size = changing
            text += f" For {_IN_WORDS}, use the setting “{title(best_size.setting)}”: a new size costs "
            text += f"{best_size.new:.2g} s instead of {own_size.new:.3g} s."
        text += sentences(run.results, dtype_speeds(run.results, per))
        if build := other_build(run.machine, findings, verdict):
            text = (
                "Install another PyTorch (`rocmprobe install`): this one, or a library in it, has no code "
                f"for {build.option.gfx}. Until then: {text}"
            )
    return Recommendation(
        verdict=verdict,
        sentence=text,
        configuration=configuration(run, findings, best) if best else Configuration(),
        per=per,
        alternatives=tuple(_alternative(each, best, measured, memory) for each in order if each is not best),
        cost=cost_sentence(run, best, asked[0], measured, memory) if best else "",
        costs=costs(order, asked[0], measured, memory),
        confidence=confidence(run, best),
        confidence_level="" if verdict == "not-judged" else confidence_level(run),
        not_covered=not_covered(run, best, asked[0], purpose, dtypes_elsewhere),
        advice=advice(run, findings, best is not None and best.setting.unchanged),
        # A partial run cannot be verified. It has no results.json if it crashed. If it was stopped, its
        # recommendation is based on only some of the cases.
        verify=verify_command(run.results) if best and not run.results.partial else "",
        others=_others(run, per, asked, purpose),
        limits=tuple(dict.fromkeys((*failing, *chain.from_iterable(failing_elsewhere.values())))),
    )


def _limits_elsewhere(run: Evidence, answers: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Return what fails under the settings of ``answers``, keyed by dtype.

    A program in another dtype also computes in float32, so failures in float32 count, too.
    """
    return {
        dtype: limits(run, setting, {dtype, "float32"})
        for dtype, answer in answers.items()
        for setting in filter(None, [run.results.setting(answer["setting"])])
    }


def ordered_dtypes(run: Evidence) -> tuple[str, ...]:
    """Return the tested dtypes, beginning with the dtype of the recommendation.

    The first dtype is the one in which the user's program computes most, or float32 without a program.
    """
    shapes = shapes_of(run.results)
    flops: Counter[str] = Counter()
    for each in shapes.problems if shapes else ():
        flops[parse_problem(each.problem).dtype] += each.flops
    return tuple(sorted(run.dtypes, key=lambda dtype: -flops[dtype])) or ("float32",)


def _preferring(
    run: Evidence, best: Optional[Assessment], ranking: list[Assessment], dtype: str
) -> list[Assessment]:
    """Return the ranking for ``dtype`` with the setting of ``best`` first, if it is correct.

    One configuration for all dtypes is simpler than another one for each. But if another library computes
    everything correctly in ``dtype`` and in float32, which its programs need, too, then the smaller change
    stays first.
    """
    first = next((each for each in ranking if each.right), None)
    same = next((each for each in ranking if best and each.setting is best.setting), None)
    if first is None or same is None or not same.right:
        return ranking
    verdicts = {same.setting.verdict, first.setting.verdict}
    other_library = len(verdicts) > 1 and not verdicts <= set(NATIVE)
    if other_library and not limits(run, first.setting, {dtype, "float32"}):
        return ranking
    return [same, *(each for each in ranking if each is not same)]


def _others(
    run: Evidence, per: Mapping[str, Mapping[str, Any]], asked: tuple[str, ...], purpose: str
) -> dict[str, Configuration]:
    answers = differing(per, asked, purpose)
    changing = per.get(f"{asked[0]}/{_CHANGING_SIZES}")
    if changing:
        answers[_IN_WORDS] = changing
    settings = {each.name: each for each in run.settings}
    return {
        words: of_setting(run.results, settings[answer["setting"]])
        for words, answer in answers.items()
        if answer["setting"] in settings
    }


def _answer(run: Evidence, ranking: Sequence[Assessment], dtype: str) -> dict[str, Any]:
    best = next((each for each in ranking if each.right), None)
    if best is None:
        return {"verdict": _without_a_right_setting(run, dtype), "setting": None, "env": {}}
    return _of_setting(best.setting)


def _of_setting(setting: Setting) -> dict[str, Any]:
    return {"verdict": setting.verdict, "setting": setting.name, "env": dict(setting.env)}


def _without_a_right_setting(run: Evidence, dtype: str) -> str:
    if failed_imports(run) or not has_convolution_outcome(run) or untested_settings(run, dtype):
        return "not-judged"
    return "none"


def _alternative(
    each: Assessment, best: Optional[Assessment], measured: Speed, memory: Mapping[str, float]
) -> dict[str, Any]:
    name = each.setting.name
    timed = best and measured.comparable(name, best.setting.name)
    return {
        "setting": name,
        "verdict": each.setting.verdict,
        "right": each.right,
        "seconds": measured.seconds.get(name),
        "level": measured.level(name, best.setting.name) if best and timed else None,
        "peak_bytes": memory.get(name),
        "reason": each.setting.reason if each.right else _objection(each),
    }


def _objection(each: Assessment) -> str:
    if each.against:
        return quoted(each.against, 1)[0]
    if not each.unproven:
        return "no convolution was tested with this setting"
    why = (
        "does not apply to"
        if each.unproven[0].state == "n/a"
        else "a failing test was not run with this setting:"
    )
    return f"{why} {quoted(each.unproven, 1)[0]}"
