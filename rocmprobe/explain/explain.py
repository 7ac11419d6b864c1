"""Explanation of a failure, given a log and facts: an answer as specific as the evidence allows, and ranked
causes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Optional

from rocmprobe.explain.errors import FoundError, find_error
from rocmprobe.explain.extraction import (
    PYTHON,
    USER,
    Error,
    LogStructure,
    answers,
    extract,
    is_warning,
)
from rocmprobe.explain.inference import ANYWHERE, short
from rocmprobe.explain.log_facts import Facts
from rocmprobe.explain.scope import only_follows, own_error, remedy_of_error
from rocmprobe.explain.signatures import calibration
from rocmprobe.explain.situations import WORDS
from rocmprobe.explain.weighing import Weighed, ruled_out, scores, weigh
from rocmprobe.knowledge import causes
from rocmprobe.text.log import Log

#: A cause is an alternative to the best cause if its score is at least this fraction of the best score.
_RIVAL = 0.1
#: From this score on, an answer counts as certain: it has no "Perhaps", and no check to confirm it.
_SURE = 0.9
_ANSWER = 0.7
#: From this score on, a cause is named as a guess. On the labelled reports with which the rules were written,
#: 65 of 83 first causes with a score between ``_GUESS`` and ``_ANSWER`` are correct (benchmarks/explain.py).
_GUESS = 0.5
_LONGEST_QUOTE = 120
_LONGEST_HINT = 240
#: Groups whose advice is to install software again. Installing takes long, so the answer begins with a check.
_COSTLY = frozenset(("installation", "wrong-build", "no-code", "machine"))
_NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


class _Reply(NamedTuple):
    """Summary and action of an explanation.

    ``by_meaning`` is True if they are the meaning of an error and not of a cause.
    """

    summary: str
    action: str
    by_meaning: bool = False


@dataclass(frozen=True)
class RankedCause:
    """A possible cause of the failure.

    ``score`` is the share of the evidence that speaks for the cause (0 to 1).
    """

    cause: str
    layer: str
    score: float
    evidence: tuple[str, ...]
    advice: str
    verify: str
    against: tuple[str, ...] = ()


@dataclass(frozen=True)
class Level:
    """A layer or a group of causes. ``score`` is the share of the evidence that speaks for it (0 to 1)."""

    name: str
    score: float


@dataclass(frozen=True)
class Explanation:
    """Explanation of a failure.

    ``causes`` are the possible causes, best first, or empty without evidence. ``causes`` contains ``unknown``
    only as the first item. ``action`` is what the user should do or check first. ``decide`` tells the user
    what to find out to choose between the remaining causes, or is None. ``note`` names the causes that facts
    exclude. ``elsewhere`` is the reason why AMD's stack has no part in the failure, or "".
    """

    summary: str
    layer: Optional[Level]
    group: Optional[Level]
    action: str
    causes: tuple[RankedCause, ...]
    facts: Facts
    decide: Optional[str]
    note: str
    elsewhere: str = ""

    @property
    def sure(self) -> bool:
        """Return True if the first cause is probable enough to be the answer."""
        return _is_sure(self.causes)


def _is_sure(ranked: tuple[RankedCause, ...]) -> bool:
    return bool(ranked) and ranked[0].cause != "unknown" and ranked[0].score >= _ANSWER


def explain(log: Log, facts: Facts) -> Explanation:
    """Explain why the program that printed ``log`` failed, on a machine with these ``facts``."""
    structure = extract(log)
    weighed = weigh(log, facts, structure)
    shares = scores(weighed.points, calibration())
    ranked = tuple(_ranked(name, share, weighed, facts) for name, share in _shown(shares))
    layer, group = _best_layer(shares, weighed), _best_group(shares)
    meaning: Optional[FoundError] = None
    sure = _is_sure(ranked)
    if sure:
        layer = Level((weighed.elsewhere and weighed.reporting_layer) or ranked[0].layer, ranked[0].score)
    else:
        meaning = _meaning(log, structure, weighed)
        if meaning and (layer is None or layer.score < _ANSWER):
            layer = Level(meaning.layer, _ANSWER)
    reply = _reply(ranked, layer, group, weighed, structure, meaning, facts.true_gfx)
    action = reply.action
    decide = None if weighed.elsewhere or reply.by_meaning else _decide(ranked, layer)
    if decide and (answers(structure, decide) or decide in action):
        decide = None
    note = " ".join(f"{line[0].upper()}{line[1:]}." for line in ruled_out(weighed))
    if structure.hint and (not sure or causes.cause(ranked[0].cause).group in ANYWHERE):
        action = f"The log itself says: {short(structure.hint.text.strip(), _LONGEST_HINT)} {action}"
    if "torch" not in weighed.words:
        if weighed.words & _OTHER_PROGRAMS:
            action = without_torch(action)
        elif layer is not None and layer.name in _BELOW_TORCH:
            action = without_torch(action, _CODE_OF_TORCH)
    if not weighed.elsewhere and "amd" not in weighed.words and _is_of_amd(ranked, layer):
        action = (
            "The log does not name the GPU, and this advice is for AMD GPUs. With an NVIDIA GPU, search for "
            f"the message in the tracker of {_whose(structure)}. With an AMD GPU: {action}"
        )
    return Explanation(
        reply.summary, layer, group, without_what_is_set(action, facts.env), ranked, facts,
        decide, note, weighed.elsewhere if ranked else "",
    )  # fmt: skip


def _is_of_amd(ranked: tuple[RankedCause, ...], layer: Optional[Level]) -> bool:
    named = [each for each in ranked if each.cause != "unknown"]
    if named and named[0].score >= _GUESS:
        first = named[0].cause
        return first not in _OF_ANY_GPU and causes.cause(first).group not in ANYWHERE
    return layer is not None and layer.name in _LAYERS_OF_AMD


_SENTENCES = re.compile(r"(?<=[.:;]) +(?=[A-Z`])")
_ASSIGNMENT = re.compile(r"\b([A-Z][A-Z0-9_]{3,})=([^\s`,;'\"]+)")


def without_what_is_set(advice: str, env: Mapping[str, str]) -> str:
    """Return ``advice`` without each sentence whose assignments (NAME=VALUE) are all in ``env`` already.

    If a sentence was dropped, the result begins with a note that names the variables of that sentence.
    """
    kept, dropped = [], []
    for sentence in _SENTENCES.split(advice):
        asked = _ASSIGNMENT.findall(sentence)
        if asked and all(env.get(name) == value.rstrip(".") for name, value in asked):
            dropped += [f"{name}={env[name]}" for name, _ in asked]
        else:
            kept.append(sentence)
    if not dropped:
        return advice
    dropped = list(dict.fromkeys(dropped))
    verbs = "is already set and does" if len(dropped) == 1 else "are already set and do"
    already = f"{' and '.join(dropped)} {verbs} not help here."
    return " ".join((already, *(kept or ["Run `rocmprobe run`: it tries each layer and each setting."])))


def _meaning(log: Log, structure: LogStructure, weighed: Weighed) -> Optional[FoundError]:
    """Return the meaning of the log's error, or None if unknown.

    First look for a row about AMD's stack in data/errors.toml. If no row matches and the log is not about
    Triton, call ``own_error``, which looks for an error that the program itself caused.
    """
    lines = [line for line in log.lines if line.number not in structure.excused]
    found = find_error((line for line in lines if not is_warning(line.text)), "amd")
    if found is None and "triton" not in weighed.words:
        found = own_error(structure, lines)
    return found


#: Causes whose group is not in ``ANYWHERE``, but whose advice is for every GPU.
_OF_ANY_GPU = frozenset(("source-build-failure", "wrong-torch-build", "python-package-conflict"))
#: Layers whose advice concerns only AMD's software.
_LAYERS_OF_AMD = frozenset(("hsa", "hip", "rocblas", "torch-build"))
#: If one of these layers fails, programs without PyTorch fail, too.
_BELOW_TORCH = frozenset(("hardware", "driver", "hsa", "hip"))
#: Text between a check and the advice that depends on the result of the check.
_IF_SO = "Only if it is so: "
#: Words of a log which show that the program does not use PyTorch.
_OTHER_PROGRAMS = frozenset(("llama", "tensorflow", "other-program"))
_FULL_STOPS = re.compile(r"(?<=\.) +(?=[A-Z`])")
_ABOUT_TORCH = re.compile(r"torch|rocmprobe\.bypass", re.IGNORECASE)
_CODE_OF_TORCH = re.compile(r"torch\.|rocmprobe\.bypass")


def without_torch(advice: str, about: re.Pattern[str] = _ABOUT_TORCH) -> str:
    """Return ``advice`` without the sentences that match ``about``.

    If no sentence remains, return the advice to use ``rocmprobe run``.
    """
    kept = [sentence for sentence in _FULL_STOPS.split(advice) if not about.search(sentence)]
    if kept and kept[0].startswith(_IF_SO):
        kept[0] = f"If this is the reason: {kept[0][len(_IF_SO) :]}"
    return " ".join(kept) or "Run `rocmprobe run`: it tests each layer without the program."


def _best_layer(shares: Iterable[tuple[str, float]], weighed: Weighed) -> Optional[Level]:
    """Return the layer with the largest share, or None if no cause has a layer.

    Each cause's share is divided among the layers to which its evidence belongs. Without evidence, as for
    ``unknown``, the share counts for the layer that reports the failure.

    If the shares of a layer and of its parts are all less than ``_ANSWER``, but their sum is not, the layer
    gets the sum.
    """
    found: dict[str, float] = defaultdict(float)
    for cause, share in shares:
        evidence = weighed.places.get(cause) or {weighed.reporting_layer: 1.0}
        whole = sum(evidence.values())
        for layer, weight in evidence.items():
            if layer:
                found[layer] += share * weight / whole
    if not found:
        return None
    for whole_layer in {row.within for row in causes.layers() if row.within}:
        parts = {name: found[name] for name in (*causes.parts_of(whole_layer), whole_layer) if name in found}
        if parts and max(parts.values()) < _ANSWER <= sum(parts.values()):
            found[whole_layer] = sum(parts.values())
    best = max(found, key=lambda layer: found[layer])
    return Level(best, round(min(found[best], 1.0), 3))


def _best_group(shares: Iterable[tuple[str, float]]) -> Optional[Level]:
    found: dict[str, float] = defaultdict(float)
    for cause, share in shares:
        if cause != "unknown":
            found[causes.cause(cause).group] += share
    if not found:
        return None
    best = max(found, key=lambda group: found[group])
    return Level(best, round(found[best], 3))


def _shown(shares: list[tuple[str, float]]) -> list[tuple[str, float]]:
    if shares[0][0] == "unknown":
        return shares if len(shares) > 1 else []
    return [pair for pair in shares if pair[0] != "unknown"]


def _reply(
    ranked: tuple[RankedCause, ...],
    layer: Optional[Level],
    group: Optional[Level],
    weighed: Weighed,
    structure: LogStructure,
    meaning: Optional[FoundError],
    silicon: Optional[str],
) -> _Reply:
    named = [each for each in ranked if each.cause != "unknown"]
    if not named:
        return _without_cause(weighed, structure, meaning)
    first = named[0]
    if first.cause == "wrong-torch-build" and first.score >= _GUESS and "amd" not in weighed.words:
        return _Reply(
            "This build cannot use the GPU: it was made for NVIDIA's CUDA, or only for the CPU.",
            "With an NVIDIA GPU, install or update its driver: `nvidia-smi` must work. With an AMD GPU: "
            f"{first.advice}",
        )
    if weighed.elsewhere and weighed.reporting_layer == "user-env" and "amd" in weighed.words:
        return _Reply(_sentence(weighed.elsewhere), first.advice)
    if weighed.elsewhere:
        return _Reply(f"Not a failure of the AMD stack: {weighed.elsewhere}.", first.advice)
    if first.cause == "benign-warning" and first == ranked[0]:
        if structure.warned and "remark" not in weighed.words:
            shown = f"line {structure.warned.number}: {short(structure.warned.text.strip(), _LONGEST_QUOTE)}"
            return _Reply(
                f"The log ends in a warning, and no line reports a failure ({shown}).",
                first.advice,
            )
        return _Reply(f"{causes.cause(first.cause).title}: no line reports a failure.", first.advice)
    if first.score >= _SURE:
        return _Reply(_says(first, weighed), first.advice)
    error, exact = structure.error, first.cause in weighed.clauses
    if first.cause == "outside" and first.score >= _GUESS and error and not (exact or only_follows(error)):
        return _probably_elsewhere(structure, error)
    if first.score >= _ANSWER or (exact and first.score >= _GUESS):
        return _guess(first, weighed)
    left = [each for each in named if each.score >= _RIVAL * first.score]
    if group and group.score >= _ANSWER:
        row = causes.group(group.name)
        among = [each for each in left if causes.cause(each.cause).group == group.name]
        if best := next((each for each in among if each.cause in weighed.clauses), None):
            return _guess(best, weighed)
        advice = causes.first_applicable(row.advice, weighed.words, silicon)
        summary = f"{_perhaps(group)}{row.title}{_which(len(among))}"
        return _Reply(summary, _check_first(among[0]) if group.name in _COSTLY else advice)
    place = causes.layer(layer.name) if layer and layer.score >= _ANSWER else None
    named_miopen = bool(weighed.primitive) or "miopen" in weighed.words
    of_miopen = named_miopen and place is not None and "MIOpen" in (place.fails or "")
    worth_naming = first == ranked[0] and first.score >= _GUESS and not of_miopen
    if meaning and not (of_miopen and meaning.layer.startswith(("miopen", "user-code"))):
        return _guess(first, weighed) if worth_naming and meaning.general else _by_meaning(meaning)
    if worth_naming:
        return _guess(first, weighed)
    if place and place.fails and any(each.evidence for each in left):
        inside = f" inside {WORDS[weighed.primitive]}" if weighed.primitive and of_miopen else ""
        inside_it = next((each for each in left if each.layer == place.name), None)
        advice = (
            causes.first_applicable(place.advice, weighed.words, silicon)
            if place.advice
            else _check_first(inside_it or first)
        )
        return _Reply(f"{_perhaps(layer)}{place.fails}{inside}{_which(len(left))}", advice)
    return _without_cause(weighed, structure, meaning)


def _perhaps(level: Optional[Level]) -> str:
    return "" if level and level.score >= _SURE else "Perhaps: "


def _guess(cause: RankedCause, weighed: Weighed) -> _Reply:
    """Return the reply for a cause that is not certain.

    The action begins with a check that confirms the cause, unless a rule gave the advice.
    """
    advice = cause.advice if cause.cause in weighed.remedies else _check_first(cause)
    return _Reply(f"Perhaps: {_says(cause, weighed)}", advice)


def _says(cause: RankedCause, weighed: Weighed) -> str:
    """Return the clause of the rule that found the cause, or else the title of the cause, as a sentence."""
    exact = weighed.clauses.get(cause.cause)
    return _sentence(exact) if exact else f"{causes.cause(cause.cause).title}."


def _probably_elsewhere(structure: LogStructure, error: Error) -> _Reply:
    """Return the reply for an error that is probably not a failure of AMD's stack."""
    known = short(f"{error.kind}: {error.message}".strip(": "), _LONGEST_QUOTE)
    return _Reply(
        f"Probably not a failure of the AMD stack: {known} (line {error.line}).",
        remedy_of_error(structure)
        or f"Search for this message in the tracker of {_whose(structure)}. `rocmprobe run` tests the GPU "
        "and its software without the program.",
    )


def _check_first(cause: RankedCause) -> str:
    check = causes.deciding_check(cause.cause, "unknown")
    return f"First check: {check} {_IF_SO}{cause.advice}" if check else cause.advice


_LINE = re.compile(r"line (?P<line>\d+): (?P<says>.*)", re.DOTALL)
_WORD = re.compile(r"(?:the|a|an|it|what|something|two|this|these|another|programs?|no|such) ")


def _sentence(says: str) -> str:
    match = _LINE.fullmatch(says)
    clause, line = (match["says"], f" (line {match['line']})") if match else (says, "")
    # Capitalize only ordinary words, because a name can begin with a small letter.
    return f"{clause[0].upper() if _WORD.match(clause) else clause[0]}{clause[1:]}{line}."


def _by_meaning(meaning: FoundError) -> _Reply:
    return _Reply(_sentence(f"line {meaning.line}: {meaning.says}"), meaning.step, by_meaning=True)


def _which(reasons: int) -> str:
    return (
        f"; the log does not show which of {_NUMBERS.get(reasons, str(reasons))} causes."
        if reasons > 1
        else "."
    )


def _without_cause(weighed: Weighed, structure: LogStructure, meaning: Optional[FoundError]) -> _Reply:
    """Return the reply if no cause, group or layer is certain."""
    unknown = causes.advice_for("unknown", weighed.words)
    stops = next((each.says for each in weighed.refused if each.stops), None)
    if meaning and not (meaning.general and stops):
        return _by_meaning(meaning)
    error = structure.error
    if stops and error is None:
        return _Reply(f"The log does not show why, but the facts do: {stops}.", unknown)
    if error is None and structure.python_owner:
        says = "the log ends inside a traceback, before the error itself"
        return _Reply(
            f"Not enough evidence: {says}.", "Add the lines that follow: the last line names the error."
        )
    if error is not None:
        known = f"{error.kind}: {error.message}".strip(": ")
        whose = _whose(structure)
        return _Reply(
            f"Not enough evidence: rocmprobe does not know the error in line {error.line} "
            f"({short(known, _LONGEST_QUOTE)}).",
            f"Search for this line in the tracker of {whose}. `rocmprobe run` tests the GPU and its "
            f"software without the program: if all passes, the cause is in {whose} or its input.",
        )
    frame = structure.native
    if frame is not None and weighed.reporting_layer:
        where = f"{frame.owner or short(frame.text, _LONGEST_QUOTE)} (line {frame.line})"
        return _Reply(
            f"Not enough evidence: the program stops in {where}, and no line says why.",
            "Run `rocmprobe run`: it tries each layer in a separate process and names the first that fails.",
        )
    if weighed.reporting_layer and causes.layer(weighed.reporting_layer).fails:
        place = causes.layer(weighed.reporting_layer)
        advice = causes.first_applicable(place.advice, weighed.words, None) if place.advice else unknown
        return _Reply(f"{place.fails}; the log does not show why.", advice)
    if not structure.failed:
        return _Reply(
            "Not enough evidence: no line of this log reports a failure.",
            "Pass the lines where the program stops or fails, and its stderr: `python train.py > log.txt "
            "2>&1`. After a hang or reset of the GPU, add the end of `sudo dmesg`.",
        )
    return _Reply("Not enough evidence: nothing in the log or the facts points to a cause.", unknown)


def _whose(structure: LogStructure) -> str:
    return structure.python_owner if structure.python_owner not in ("", PYTHON, USER) else "the program"


def _ranked(cause: str, score: float, weighed: Weighed, facts: Facts) -> RankedCause:
    row = causes.cause(cause)
    advice = weighed.remedies.get(cause) or causes.advice_for(cause, weighed.words, facts.true_gfx)
    by_weight = sorted(
        ((by_cause[cause], says) for says, by_cause in weighed.pieces if cause in by_cause),
        key=lambda pair: -abs(pair[0]),
    )
    return RankedCause(
        cause=cause,
        layer=(weighed.reporting_layer if cause == "unknown" else None) or row.layer,
        score=round(score, 3),
        evidence=tuple(says for weight, says in by_weight if weight > 0),
        advice=without_what_is_set(advice, facts.env),
        verify=row.verify,
        against=tuple(says for weight, says in by_weight if weight < 0),
    )


def _decide(ranked: tuple[RankedCause, ...], layer: Optional[Level]) -> Optional[str]:
    named = [each for each in ranked if each.cause != "unknown"]
    if not named or named[0].score >= _SURE:
        return None
    if named[0].score < _ANSWER and layer and layer.score >= _ANSWER and causes.layer(layer.name).confirm:
        return causes.layer(layer.name).confirm
    if len(named) == 1:
        return causes.deciding_check(named[0].cause, "unknown")
    first, second = named[0], named[1]
    return causes.deciding_check(first.cause, second.cause) if second.score >= _RIVAL * first.score else None
