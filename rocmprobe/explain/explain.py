"""Explanation of a failed program: from a log and facts to one answer.

The path is: lines, facts, signatures and conditions, answer. A run uses the same path for its own outcomes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from rocmprobe.explain.conditions import conditions
from rocmprobe.explain.facts import Facts
from rocmprobe.explain.failure import (
    PROGRAM,
    Failure,
    failure_in,
    is_warning,
    layer_of,
    reports_failure,
)
from rocmprobe.explain.signatures import Hit, chosen, found
from rocmprobe.knowledge import causes
from rocmprobe.knowledge.causes import Cause, Step
from rocmprobe.knowledge.installation import Place
from rocmprobe.knowledge.stacks import distribution_of
from rocmprobe.text.log import Line, Log

#: Exceptions that Python code raises, so the package of the innermost frame raised them. Neither HIP nor a
#: library below PyTorch raises them.
_OF_PYTHON = frozenset({
    "AssertionError", "AttributeError", "ConnectionError", "EOFError", "FileNotFoundError", "HTTPError",
    "ImportError", "IndentationError", "IndexError", "JSONDecodeError", "KeyError", "KeyboardInterrupt",
    "ModuleNotFoundError", "NameError", "NotImplementedError", "PermissionError", "ReadTimeout",
    "SyntaxError", "TypeError", "UnicodeDecodeError", "UnpicklingError", "ValueError", "ValidationError",
    "ZeroDivisionError",
})  # fmt: skip
#: Packages of AMD's stack: their exceptions can come from the stack.
_OF_THE_STACK = frozenset({
    "torch", "torchvision", "torchaudio", "triton", "rocm_sdk", "_rocm_sdk_core", "amdsmi", "bitsandbytes",
    "flash_attn", "aiter", "pip", "",
})  # fmt: skip
#: Causes that name what was seen. The answer then says where, not why.
SYMPTOMS = frozenset({
    "gpu-hang-reset", "gpu-memory-fault-unexplained", "hsa-init-failed", "unknown",
    "wrong-results-unexplained",
})  # fmt: skip
#: Facts that make programs fail without a message, so a harmless message does not mean that all is well.
_SUSPECTS = frozenset({"override-lacks", "wheel-lacks", "torch-lacks", "rocm-before-gpu", "other-device"})
_HARMLESS, _ELSEWHERE = "benign-warning", frozenset({"user-code"})
#: Kind of failure, for the choice of tests, keyed by layer.
_TESTS = {
    "rocblas": "blas", "torch-build": "code", "triton": "triton", "user-env": "install", "hardware": "device",
    "permissions": "device", "miopen": "miopen", "miopen-find": "miopen", "miopen-compile": "miopen",
    "miopen-exec": "miopen",
}  # fmt: skip
#: Abnormal ends that a user or `rocmprobe exec` states.
_ENDS = {"segv": "a segmentation fault", "abort": "an abort", "hang": "a hang"}
_LONGEST_START, _MESSAGE_LINES = 40, 4
#: Commands that do not work on Windows.
_LINUX = re.compile(r"rocmprobe (?:run|exec)|rocminfo|sudo|`ls |uname|rocm-smi")
ANSWERS = ("known", "located", "elsewhere", "nothing")


@dataclass(frozen=True)
class Diagnosis:
    """Result of matching a log: the cause that signatures and conditions prove.

    - ``cause``: id in data/causes.toml, or "" if no cause is proven
    - ``layer``: layer that fails, or "" if unknown
    - ``hit``: signature that decided, or None
    - ``because``: sentences of the conditions that the cause requires
    - ``words``: conditions that hold, each with the sentence that proves it
    - ``others``: causes of further signatures, with the reason why they are not the answer
    - ``symptom``: cause that only names what was seen, if no cause is proven
    """

    cause: str
    layer: str
    hit: Optional[Hit]
    because: tuple[str, ...]
    words: Mapping[str, str]
    hits: tuple[Hit, ...]
    others: tuple[str, ...] = ()
    symptom: str = ""


@dataclass(frozen=True)
class Explanation:
    """Answer for a failed program: one of ``ANSWERS``.

    - ``headline``: the cause, the layer that fails, or what failed instead of AMD's stack
    - ``remedy``: steps to take, for a known cause; ``verify``: how to check that they worked
    - ``tests``: tests that locate the failure further, the shortest first, for a located failure
    - ``why``: the line of the log and the facts that prove the answer
    - ``weighed``: other causes, each with the reason why it is not the answer
    - ``note``: what was not read of the log, or ""
    """

    answer: str
    headline: str
    cause: str = ""
    layer: str = ""
    remedy: Optional[Step] = None
    verify: str = ""
    why: tuple[str, ...] = ()
    tests: tuple[Step, ...] = ()
    weighed: tuple[str, ...] = ()
    facts: Facts = field(default_factory=Facts)
    note: str = ""


def diagnose(lines: Sequence[Line], facts: Facts, extra: Iterable[str] = ()) -> Diagnosis:
    """Return the cause that ``lines`` and ``facts`` prove, or else the layer that fails.

    ``extra`` are more conditions that hold.
    """
    hits = found(lines)
    text = "\n".join(line.text for line in lines)
    words = {**conditions(facts, text), **dict.fromkeys(extra, "")}
    words.update(dict.fromkeys((hit.signature.name for hit in hits), ""))
    fatal = [hit for hit in hits if hit.signature.fatal]
    # Without a message of a failure, the facts alone can prove a cause.
    named = [(hit, cause) for hit in fatal or hits if (cause := chosen(hit.signature, words))]
    proven = [(hit, cause) for hit, cause in named if cause not in SYMPTOMS]
    others = tuple(_rejected(hits, words, {cause for _, cause in proven[:1]}))
    for hit, cause in proven[:1]:
        more = tuple(f"{other}: {_quoted(each)}" for each, other in proven[1:] if other != cause)
        return Diagnosis(
            cause, hit.signature.layer, hit, _proofs(hit, cause, words), words, hits, others + more
        )
    for hit, symptom in (*named, *((hit, "") for hit in fatal))[:1]:
        return Diagnosis("", hit.signature.layer, hit, (), words, hits, others, symptom)
    return Diagnosis("", "", None, (), words, hits, others)


def explain(log: Log, facts: Facts) -> Explanation:
    """Explain why the program that printed ``log`` failed, on a machine with these ``facts``."""
    lines = [line for line in log.lines if line.text.strip()]
    diagnosis = diagnose(lines, facts)
    harmless = {line.number for hit in diagnosis.hits if hit.signature.harmless for line in hit.lines}
    failure = failure_in(
        [line for line in lines if line.number not in harmless and not is_warning(line.text)]
    )
    if elsewhere := _elsewhere(diagnosis, failure):
        cause = diagnosis.cause if diagnosis.layer in _ELSEWHERE else "outside"
        return Explanation("elsewhere", f"Not a failure of AMD's stack: {elsewhere}.", cause, facts=facts)
    if diagnosis.cause:
        return _known(diagnosis, facts)
    ended = _ENDS.get(facts.exit or "", "") or (failure.end if "amd" in diagnosis.words else "")
    if diagnosis.hit or ended or layer_of(failure.library):
        return located(diagnosis, replace(failure, end=ended), facts)
    failed = failure.kind or any(reports_failure(line.text) for line in lines if line.number not in harmless)
    suspects = _SUSPECTS.intersection(diagnosis.words)
    if harmless and not failed and not suspects and facts.exit in (None, "none"):
        hit = next(hit for hit in diagnosis.hits if hit.signature.harmless)
        return _known(
            Diagnosis(_HARMLESS, "warning-only", hit, (hit.signature.says,), diagnosis.words, ()), facts
        )
    return Explanation(
        "nothing",
        "The log shows no failure that rocmprobe knows. If the program fails, give the whole log.",
        facts=facts,
        weighed=diagnosis.others,
    )


def _elsewhere(diagnosis: Diagnosis, failure: Failure) -> str:
    """Return what failed if AMD's stack has no part in the failure, else ""."""
    raised = f"{failure.kind} in {_package(failure.owner)}" if failure.kind else ""
    if diagnosis.hit and diagnosis.layer in _ELSEWHERE:
        return f"{diagnosis.hit.signature.says}{f' ({raised})' if raised else ''}"
    if "nvidia" in diagnosis.words and "amd" not in diagnosis.words:
        return "the log is from an NVIDIA GPU" if diagnosis.hit or failure.kind or failure.end else ""
    if failure.kind not in _OF_PYTHON or failure.owner in _OF_THE_STACK or failure.line is None:
        return ""
    # A message of the stack in the last traceback, or after it, is the reason for the exception.
    last = max((line.last for hit in diagnosis.hits if hit.signature.fatal for line in hit.lines), default=-1)
    if last >= failure.begin or layer_of(failure.library) or failure.end:
        return ""
    return raised


def _package(owner: str) -> str:
    return owner if owner in (PROGRAM, "Python", "") else f"package {owner}"


def _known(diagnosis: Diagnosis, facts: Facts) -> Explanation:
    row = causes.cause(diagnosis.cause)
    place = _place(facts, diagnosis.words)
    step = causes.step_for(row.name, diagnosis.words, place)
    if place.system == "linux" and not facts.os and any("apt " in command for command in step.commands):
        step = replace(step, does=f"On Linux: {step.does[:1].lower()}{step.does[1:]}")
    why = (_quoted(diagnosis.hit), *diagnosis.because) if diagnosis.hit else diagnosis.because
    return Explanation(
        "known", row.title, row.name, diagnosis.layer or row.layer, step, _verify(row, diagnosis.words), why,
        weighed=diagnosis.others, facts=facts,
    )  # fmt: skip


def _verify(row: Cause, words: Collection[str]) -> str:
    on_linux_only = "windows" in words and _LINUX.search(row.verify)
    return "The same program gets past the line above." if on_linux_only else row.verify


def _place(facts: Facts, words: Collection[str]) -> Place:
    """Return the machine of the program, as `rocmprobe install` needs it."""
    system = "windows" if "windows" in words else "wsl" if "wsl" in words else "linux"
    gfx = facts.true_gfx or facts.effective_gfx
    return Place(
        (gfx,) if gfx else (), facts.gpu or "", system, distribution_of(facts.os), torch=facts.torch or "",
        variables=facts.env,
    )  # fmt: skip


def located(diagnosis: Diagnosis, failure: Failure, facts: Facts) -> Explanation:
    """Return where the program failed, and the tests that decide."""
    # Frames of an exception show who raised it. Only the frames of a crash show where it is.
    crashed = layer_of(failure.library) if not (failure.kind and diagnosis.hit) else ""
    layer = crashed or diagnosis.layer
    if crashed:
        why = f"line {failure.line.number}: {failure.line.text.strip()}" if failure.line else ""
        where = f"the failure is in {failure.library}"
    elif diagnosis.hit:
        why, where = _quoted(diagnosis.hit), diagnosis.hit.signature.says
    else:
        why, where = "", f"the program ended in {failure.end}, and no line says why"
    group = diagnosis.hit.signature.tests if diagnosis.hit and layer == diagnosis.layer else ""
    contradiction = next((each for each in diagnosis.others if each.startswith("not ")), "")
    tests = causes.tests_for(group or _TESTS.get(layer, "fault"), diagnosis.words)
    tests = tests[: len(tests) - bool(contradiction)]
    return Explanation(
        "located", f"Where, not why: {where}.", "", layer, None, "",
        tuple(filter(None, (why, contradiction))), tests, diagnosis.others, facts,
    )  # fmt: skip


def _quoted(hit: Hit) -> str:
    # The last message counts, and of a message with several lines the first.
    line = hit.lines[-1]
    for before in reversed(hit.lines[:-1]):
        line = before if line.number - before.number < _MESSAGE_LINES else line
    at = hit.signature.regex.search(line.text)
    # The runtime's log lines begin with places and times, which would hide the message.
    start = line.text.rfind(": ", 0, at.start()) + 2 if at and at.start() >= _LONGEST_START else 0
    text = f"…{line.text[max(start, at.start() - _LONGEST_START) :]}" if start and at else line.text
    return f"line {line.number}: {text.strip()}"


def _proofs(hit: Hit, cause: str, words: Mapping[str, str]) -> tuple[str, ...]:
    row = next(each for each in hit.signature.causes if each.cause == cause and each.holds(words))
    return tuple(words[word] for word in row.requires if words[word])


def _rejected(hits: Iterable[Hit], words: Mapping[str, str], named: Iterable[str]) -> Iterator[str]:
    """Yield the causes that a signature suggests but a fact excludes, each with the fact."""
    seen = set(named)
    for hit in hits:
        for each in hit.signature.causes:
            reasons = [words[word] for word in each.excludes if words.get(word)]
            if each.cause not in seen and reasons:
                seen.add(each.cause)
                yield f"not {each.cause}: {reasons[0]}"
