"""Wording of the verdict: its word and tone, the headline, and the sentences of the recommendation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from rocmprobe.judge.assessment import (
    AS_FOUND,
    TRAINING,
    Assessment,
    convolutions,
    failed,
    failed_convolutions,
    library,
    owed_to_the_user,
)
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.direct import without_torch
from rocmprobe.judge.findings.primitives import layer_outcomes
from rocmprobe.judge.recommendation.advice import other_build
from rocmprobe.judge.recommendation.configuration import chosen_gpu, isa_override, of_setting
from rocmprobe.judge.recommendation.coverage import BASICS_UNTESTED
from rocmprobe.judge.recommendation.limits import BASICS, failing_basics, limits
from rocmprobe.judge.recommendation.untested import lowest_failure_sentence
from rocmprobe.knowledge.environment import removed
from rocmprobe.knowledge.layers import OPTIONS, options_for
from rocmprobe.knowledge.settings import title
from rocmprobe.model.results import NATIVE, Configuration, Finding, Recommendation, Results, Setting
from rocmprobe.text.plain_text import assignments, joined, sentence_case
from rocmprobe.torch_flags import statement


@dataclass(frozen=True)
class Wording:
    """Words for one verdict.

    - ``tone``: colour tone in reports
    - ``headline``: at most twelve words
    - ``sentence``: result of the recommended setting, or "" if there is none
    - ``nothing_to_copy``: sentence that replaces the blocks to copy if there are none
    """

    word: str
    tone: str
    headline: str
    sentence: str = ""
    nothing_to_copy: str = "Nothing needs to be set."


WORDINGS: Mapping[str, Wording] = {
    "native": Wording(
        "Native", "good", "Convolution works in {library}. Change nothing.",
        "Native convolution works: {library} gives correct results on all {dtype} problems tested.",
    ),
    "native-with-settings": Wording(
        "Native, with settings", "good", "{changes}. Convolution then works in {library}.",
        "{library} gives correct results with {setting}.",
    ),
    "vendor-off": Wording(
        "Vendor library off", "slow", "Switch {library} off. PyTorch's own kernels give correct results.",
        "Switch {library} off: PyTorch's own kernels give correct results on all {dtype} problems tested.",
    ),
    "bypass": Wording(
        "Bypass", "slow", "Use rocmprobe's bypass. Convolution in {library} fails or is slower.",
        "Use rocmprobe's bypass: it gives correct results on all {dtype} problems tested.",
    ),
    "cpu": Wording(
        "CPU", "slow", "Use the CPU. Nothing on the GPU gave correct results.",
        "Use the CPU: only the CPU gave correct results on all {dtype} problems tested.",
    ),
    "none": Wording(
        "No safe configuration", "bad", "No configuration gave correct results.",
        "No safe configuration was found: ",
        "There is nothing to copy: no setting passed its checks.",
    ),
    "not-judged": Wording(
        "Not judged", "unlearned", "Too little was tested to recommend a configuration.",
        nothing_to_copy="There is nothing to copy: too little was tested to recommend a setting.",
    ),
    "gpu-not-tested": Wording("GPU not tested", "slow", "The GPU was not tested."),
    "": Wording(
        "No recommendation", "fault", "No recommendation: the run ended too early.",
        "The run ended before a recommendation could be made.",
        "There is nothing to copy.",
    ),
}  # fmt: skip
_MOST_WORDS = 12
#: Maximum number of settings in a list of the settings under which convolution worked.
_NAMED = 4


def verdict_word(verdict: str, pytorch_layers: Iterable[str] = ()) -> str:
    """Return ``verdict`` in words, including the layers that run in PyTorch's own kernels."""
    others = [OPTIONS[option] for option in pytorch_layers if option in OPTIONS]
    word = WORDINGS[verdict].word
    return f"{word}, {' and '.join(others)} by PyTorch" if others else word


def headline(results: Results) -> str:
    """Return the verdict in at most twelve words: what to do, and what still fails or was not tested."""
    found = results.recommendation
    if found is None:
        return WORDINGS[""].headline
    build = other_build(results.machine, results.findings, found.verdict)
    words = "Install another PyTorch: rocmprobe install." if build else _what_to_do(results, found)
    if found.verdict in ("cpu", "none") and not build:
        basics = failing_basics(results)
        return _and(words, f"On the GPU, {basics} fail.") if basics else words
    if found.limits:
        return _and(words, f"Failing: {joined(found.limits)}.", "See what fails.")
    if found.configuration.setting and BASICS_UNTESTED in found.not_covered:
        alone = all(each.rung == "conv" for each in results.outcomes if each.learned)
        return _and(words, f"{'Only convolution was' if alone else 'Matrix products were not'} tested.")
    return words


def _and(words: str, *additions: str) -> str:
    """Return ``words`` and the first addition with which the headline has at most twelve words.

    Shorten ``words`` to its first sentence if need be.
    """
    for addition in additions:
        for start in (words, f"{words.split('. ', maxsplit=1)[0].rstrip('.')}."):
            if len(f"{start} {addition}".split()) <= _MOST_WORDS:
                return f"{start} {addition}"
    return words


def _what_to_do(results: Results, found: Recommendation) -> str:
    name, setting = library(results), results.setting(found.configuration.setting)
    if setting and setting.name == AS_FOUND:
        return "Convolution works here, but only with your environment and databases."
    if found.verdict == "gpu-not-tested" and without_torch(results):
        return "The GPU was not tested with PyTorch. Install a torch for it."
    to_set = found.configuration
    changes = _changes(to_set, setting, name) if setting else ""
    more = bool(to_set.env or to_set.code or to_set.layers)
    unnamed = "Use the configuration below" if more else "Change nothing"
    by_use = _by_use(results, changes or unnamed) if setting else ""
    if by_use:
        return by_use
    if setting and changes and changes == sentence_case(_for_layers(setting)):
        return _at_most_twelve(f"{changes}. Convolution works in {name}.")
    if setting and found.verdict in NATIVE and changes:
        return _at_most_twelve(
            WORDINGS["native-with-settings"].headline.format(library=name, changes=changes)
        )
    outside = found.verdict in ("vendor-off", "bypass")
    if setting and outside and (setting.env or setting.unset or setting.torch):
        return _at_most_twelve(f"{changes}. Convolution is then correct.")
    if found.verdict == "native" and more:
        return f"Convolution works in {name}. Use the configuration below."
    if found.verdict == "native" and found.limits:
        return f"Convolution works in {name}."
    if found.verdict == "native" and ask_for_changes(results.findings):
        return f"Convolution works in {name}. The findings ask for other changes."
    dtype = next(iter(found.per), "float32/").partition("/")[0]
    if found.verdict == "bypass" and _native_fails(results, dtype):
        return f"Use rocmprobe's bypass. Every {dtype} convolution in {name} failed."
    return WORDINGS[found.verdict].headline.format(library=name, changes="Use the setting below")


def ask_for_changes(findings: Iterable[Finding]) -> bool:
    """Return True if a finding asks for a change of the machine or of the program."""
    return any(finding.severity != "info" for finding in findings)


def _by_use(results: Results, changes: str) -> str:
    """Return a headline with the changes for each use, or "" if all uses need ``changes``.

    A use is a dtype, or input sizes that keep changing.
    """
    found = results.recommendation
    if found is None or found.verdict == "cpu":
        return ""
    suffix = f"/{results.purpose}"
    dtypes = tuple(key[: -len(suffix)] for key in found.per if key.endswith(suffix))
    uses: dict[str, list[str]] = {}
    for use in dict.fromkeys((*differing(found.per, dtypes, results.purpose), *found.others)):
        to_set = found.others.get(use)
        setting = results.setting(to_set.setting) if to_set else None
        if to_set and setting:
            change = _changes(to_set, setting, library(results)) or "change nothing"
            uses.setdefault(f"{change[:1].lower()}{change[1:]}", []).append(use)
        elif found.per[f"{use}{suffix}"]["verdict"] == "none":
            uses.setdefault("nothing works", []).append(use)
    if not uses:
        return ""
    first = f"{changes} for {dtypes[0]}."
    every = " ".join(f"For {joined(names)}, {change}." for change, names in uses.items())
    whole = f"{first} {every}"
    if len(whole.split()) > _MOST_WORDS:
        names = [name for same in uses.values() for name in same]
        whole = f"{first} Use other settings for {joined(names)}."
    return _at_most_twelve(whole)


def _changes(configuration: Configuration, setting: Setting, name: str) -> str:
    """Return what the user has to change for ``setting``, e.g. "Unset 5 variables and set A=1", or "".

    ``name`` is the name of the vendor library.
    """
    switches = assignments(setting.env)
    flags = [statement(flag, value) for flag, value in setting.torch.items() if not setting.search]
    parts = []
    for verb, what, noun in (
        ("unset", configuration.unset if setting.verdict in NATIVE else setting.unset, "variables"),
        ("set", switches, "variables"),
        ("" if switches else "set", flags, "torch flags"),
    ):
        if what:
            parts.append(f"{verb} {what[0] if len(what) == 1 else f'{len(what)} {noun}'}".strip())
    parts += list(filter(None, [_for_layers(setting)]))
    parts += [f"switch {name} off"] if not setting.vendor_library else []
    parts += ["use rocmprobe's bypass"] if setting.bypass else []
    parts += ["use the CPU"] if setting.device == "cpu" else []
    return sentence_case(joined(parts))


def _for_layers(setting: Setting) -> str:
    """Return what the user has to change for the layers that run in PyTorch's own kernels, or ""."""
    others = [OPTIONS[option] for option in setting.pytorch_layers if option in OPTIONS]
    return f"use PyTorch's kernels for {joined(others)}" if others else ""


def _at_most_twelve(headline: str) -> str:
    """Return the headline, or only its first sentence if it has more than twelve words."""
    return headline if len(headline.split()) <= _MOST_WORDS else f"{headline.split('. ', maxsplit=1)[0]}."


def _native_fails(results: Results, dtype: str) -> bool:
    tried = [
        outcome
        for outcome in results.outcomes
        if (outcome.check, outcome.setting, outcome.dtype) == ("convolution", "default", dtype)
    ]
    return bool(tried) and not any(outcome.works for outcome in tried)


def sentence(
    run: Evidence,
    best: Optional[Assessment],
    ranked: list[Assessment],
    dtype: str,
    findings: Sequence[Finding] = (),
    only: bool = False,
) -> str:
    """Return sentences that say how to run convolutions of ``dtype``, and what fails by default.

    ``only`` is True if another dtype, or input sizes that keep changing, need another configuration.
    """
    name = run.library
    if best is None:
        return f"{WORDINGS['none'].sentence}{_held(ranked, dtype)}{_why(run, ranked)}"
    if owed_to_the_user(best, ranked):
        return (
            f"Native convolution works here, but only with your own environment and databases. With them, "
            f"{name} gives correct results on all {dtype} problems tested; in a clean environment with empty "
            "databases it fails. Keep them: see the findings. This does not help on another machine."
        )
    if best.setting.unchanged and any(
        each.setting.inherit_environment and failed(each.against) for each in ranked
    ):
        gone = removed(best.setting, run.machine.environment)
        cure = f"Unset {joined(gone)}" if gone else "Use a clean environment and empty databases"
        return (
            f"{cure}: then {name} gives correct results on all {dtype} problems tested. With your own "
            "environment convolution fails: see the findings."
        )
    native = [each for each in ranked if each.setting.unchanged and not owed_to_the_user(each, ranked)]
    unchanged = next((each for each in native if each.right), None)
    faster = ""
    if unchanged and unchanged is not best:
        failing = (
            limits(run, unchanged.setting, {dtype}) if run.broken_layers(unchanged.setting, dtype) else ()
        )
        but = f"but not for {joined(failing)}" if failing else "but is slower"
        faster = f" {name} with its defaults gives correct results too, {but}."
    as_it_comes = next(iter(native), None)
    fails = (
        _fails(run, as_it_comes, best.setting, dtype, name) if as_it_comes and as_it_comes is not best else ""
    )
    if best.setting.pytorch_layers:
        return fails + _by_layer(run, best.setting, dtype) + faster
    verdict = best.setting.verdict
    words = WORDINGS[verdict].sentence.format(
        library=name, dtype=dtype, setting=_described(run, best.setting)
    )
    if verdict == "native":
        words += _nothing_but(run, name, findings, dtype if only else "")
    return fails + words + faster


def _rests_on(run: Evidence) -> str:
    override = " ".join(assignments(isa_override(run.results)))
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
    names = ", ".join(title(each.setting.name) for each in holds[:_NAMED]) + (
        ", ..." if holds[_NAMED:] else ""
    )
    checks = dict.fromkeys(each.check for held in holds for each in failed((*held.against, *held.unproven)))
    others = joined([check.replace("-", " ") for check in checks])
    but = f", but {others} failed" if others else ""
    return f"{what} worked under {len(holds)} of {asked} ({names}){but}."


def _answered(each: Assessment) -> bool:
    return any(outcome.learned for outcome in convolutions(each.counted))


def _why(run: Evidence, ranked: list[Assessment]) -> str:
    tried = any(each.setting.verdict == "cpu" for each in ranked) or not any(map(_answered, ranked))
    return f" {lowest_failure_sentence(run)}{'' if tried else ' The CPU was not tested.'}"


def _fails(run: Evidence, as_it_comes: Assessment, best: Setting, dtype: str, name: str) -> str:
    basics = [BASICS[each.check] for each in failed(as_it_comes.against) if each.check in BASICS]
    if basics:
        return f"On this GPU, {joined(tuple(dict.fromkeys(basics)))} fail. "
    # The library is not to blame if the cure changes a layer below it, or if only the CPU works.
    not_it = best.changes_lower_layers or best.device == "cpu"
    if failed_convolutions(as_it_comes):
        return f"Native {dtype} convolution fails{'' if not_it else f' in {name}'}. "
    # If ``as_it_comes`` is correct, another setting is recommended only because it is faster. Failures of
    # batch norm are then not the reason.
    counts = not as_it_comes.right
    beside = layer_outcomes(run, as_it_comes.setting.name)["batch norm"] if counts else ()
    others = dict.fromkeys(outcome.check for outcome in failed((*beside, *as_it_comes.against)))
    if "problem-matrix" in others:
        return f"Native {dtype} convolution works for common problems, but fails for others in {name}. "
    words = " and ".join(check.replace("-", " ") for check in others)
    if not words:
        return ""
    fail = "fails" if len(others) == 1 else "fail"
    return f"Native {dtype} convolution works, but {words} {fail}{'' if not_it else f' with {name}'}. "


def _by_layer(run: Evidence, setting: Setting, dtype: str) -> str:
    switches = assignments(setting.env)
    switches += [statement(flag, value) for flag, value in setting.torch.items()]
    dead = [words for words, outcomes in layer_outcomes(run, setting.name).items() if failed(outcomes)]
    others = [OPTIONS[option] for option in setting.pytorch_layers if option not in options_for(dead)]
    parts = [f"Run convolution natively{f' with {chr(32).join(switches)}' if switches else ''}"]
    parts += [f"{joined(others)} with PyTorch's own kernels"] if others else []
    also = f" {joined(dead)} fail{'s' if len(dead) == 1 else ''} without {run.library}, too." if dead else ""
    between = "; " if len(others) > 1 else ", "
    return f"{between.join(parts)}: all {dtype} problems tested give correct results.{also}"


def _nothing_but(run: Evidence, name: str, findings: Sequence[Finding], only: str) -> str:
    """Return what a program needs if convolution works by default, in all dtypes or in the dtype ``only``."""
    asked = layer_outcomes(run, "default").items()
    training = run.results.purpose == "training"
    dead = [words for words, outcomes in asked if failed(outcomes) and (training or words != "batch norm")]
    if not dead:
        chosen = " ".join(assignments(chosen_gpu(run.results)))
        if chosen:
            return f" Set {chosen}, so that programs use the GPU that was tested{_rests_on(run)}."
        if run.results.partial:
            return ""
        if training and not any(outcome.check in TRAINING for outcome in run.outcomes):
            return " Batch norm and a training step were not tested."
        if not ask_for_changes(findings):
            return f" Change nothing{f' for {only}' if only else ''}{_rests_on(run)}."
        what = f"{only} convolution" if only else "Convolution"
        return f" {what} needs no change{_rests_on(run)}. The findings ask for other changes."
    fail = f"{joined(dead)} fail{'s' if len(dead) == 1 else ''}"
    return f" Convolution needs no change, but {fail} in {name}: see the configuration."


def _described(run: Evidence, setting: Setting) -> str:
    switches = " ".join(assignments(setting.env))
    if setting.derived and setting.env:
        return f"its faulty solvers switched off: {switches}"
    shown = switches and len(setting.env) <= _NAMED and not setting.channels_last
    words = switches if shown else f"the setting “{title(setting.name)}”"
    gone = of_setting(run.results, setting).unset
    return f"{words} and without your {joined(gone)}" if gone else words


def other_dtypes(answers: Mapping[str, Mapping[str, Any]], limits: Mapping[str, Collection[str]]) -> str:
    """Return a sentence for each dtype in ``answers`` that needs another setting than the first dtype.

    ``limits`` names what fails under these settings, keyed by dtype.
    """
    parts = []
    for dtype, answer in answers.items():
        failing = f" Failing with it: {joined(list(limits[dtype]))}." if limits.get(dtype) else ""
        if answer["verdict"] == "native-with-settings":
            switches = " ".join(assignments(answer["env"]))
            change = f"set {switches}" if switches else f"use the setting “{title(answer['setting'])}”"
            parts.append(f" For {dtype}, {change}.{failing}")
        elif answer["verdict"] == "none":
            parts.append(f" No configuration gives correct results in {dtype}.")
        elif answer["setting"] is None:
            parts.append(f" Too little was tested to recommend a configuration for {dtype}.")
        else:
            parts.append(f" For {dtype}, use the setting “{title(answer['setting'])}”.{failing}")
    return "".join(parts)


def differing(
    per: Mapping[str, Mapping[str, Any]], asked: tuple[str, ...], purpose: str
) -> dict[str, Mapping[str, Any]]:
    """Return the entry of ``per`` for each dtype whose setting differs from that of ``asked[0]``."""
    answers = {dtype: per[f"{dtype}/{purpose}"] for dtype in asked}
    first = answers[asked[0]]["setting"]
    return {dtype: answer for dtype, answer in answers.items() if answer["setting"] != first}
