"""Findings about failing checks, from the explanation that each check declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from rocmprobe.checks import CHECKS
from rocmprobe.checks.check import FailureText
from rocmprobe.judge.assessment import failed, quoted
from rocmprobe.judge.blame import blamed, cure, rung_layer, signature
from rocmprobe.judge.curing import advice_of, change_words, curing_setting
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding, Outcome
from rocmprobe.text.plain_text import joined

#: Cause if torch was built without an attention backend for the chip. A missing backend is not a failure,
#: because PyTorch then uses another backend.
_MISSING = "attention-backend-missing"
_NOT_BUILT = "was not compiled for current AMD GPU architecture"
_BACKENDS = {"attention-flash": "flash", "attention-efficient": "memory-efficient"}


def kernels(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each check that fails under ``default``, if the check has an ``explanation``.

    If the explanation says so, failures under other settings count, too.

    Also yield a finding for each failing check of the group "primitives" that tests an operator, not a layer.
    """
    explained = (name for name, check in CHECKS.items() if check.explanation)
    primitives = (each.check for each in run.outcomes if each.rung == "primitives")
    for check in dict.fromkeys((*explained, *primitives)):
        about = CHECKS[check].explanation or _unlisted(check) if check in CHECKS else _unlisted(check)
        if about is None:
            continue
        outcomes = tuple(
            each
            for each in run.outcomes
            if each.check == check and (each.setting == "default" or about.any_setting)
        )
        broken = failed(outcomes)
        if broken:
            yield _finding(run, about, outcomes, broken)


def _unlisted(check: str) -> Optional[FailureText]:
    if check == "convolution-kinds" or (check in CHECKS and CHECKS[check].layer):
        return None
    words = check.replace("-", " ").capitalize()
    return FailureText(words, "controls", "No setting was tested for this operation. Run it on the CPU.")


def _finding(
    run: Evidence, about: FailureText, outcomes: tuple[Outcome, ...], broken: tuple[Outcome, ...]
) -> Finding:
    what = "computes wrong numbers" if all(each.state == "wrong" for each in broken) else "fails"
    right = {each.dtype for each in outcomes} - {each.dtype for each in broken}
    dtypes = f" in {joined(sorted({each.dtype for each in broken}))}" if right else ""
    curing = curing_setting(run, broken)
    cause, layer = blamed(run, broken, rung_layer(run, about.rung), curing is not None)
    named = signature(run, broken) is not None
    if about.wrong and not named and all(each.state == "wrong" for each in broken):
        cause = about.wrong
    title, advice = f"{about.subject} {what}{dtypes}", about.advice
    if about.general and named:
        advice = cure(run, cause, broken)
    if curing:
        title += f"; {change_words(curing)} it is correct"
        advice = advice_of(curing)
    return Finding(broken[0].check, "warning", cause, layer, title, quoted(broken), advice)


def additional_changes(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return one line for each change that a program needs in addition to the recommended setting."""
    explained = {name: check.explanation for name, check in CHECKS.items() if check.explanation}
    needed = [name for name, about in explained.items() if about.needed]
    return tuple(f"{each.title}. {each.advice}" for each in findings if each.id in needed)


def missing_backends(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if torch was built without a fused attention kernel for the chip."""
    asked = tuple(
        each
        for each in run.outcomes
        if each.check in _BACKENDS and (each.setting, each.state) == ("default", "n/a")
    )
    lacking = tuple(each for each in asked if any(_NOT_BUILT in line for line in each.evidence))
    if lacking:
        names = joined(list(dict.fromkeys(_BACKENDS[each.check] for each in lacking)))
        title = f"This torch has no {names} attention for the chip: PyTorch falls back to separate operators"
        advice = cure(run, _MISSING, lacking)
        yield Finding(_MISSING, "info", _MISSING, rung_layer(run, "controls"), title, quoted(lacking), advice)
