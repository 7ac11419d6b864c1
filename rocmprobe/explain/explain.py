"""From a log and facts to an answer, at the level that the evidence supports, and to ranked causes.

An answer goes as far down as the evidence does: to a cause, to a group of causes that share much of the
cure, or to the layer that speaks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from rocmprobe.explain.log_facts import Facts
from rocmprobe.explain.signatures import calibration
from rocmprobe.explain.situations import WORDS
from rocmprobe.explain.weighing import Weighed, ruled_out, scores, weigh
from rocmprobe.knowledge import causes
from rocmprobe.text.log import Log

#: A second cause with less than this share of the best one's score is not worth a question.
_RIVAL = 0.1
#: From this score on no question is left between the first two.
_SURE = 0.9
#: From this score on a cause, a group or a layer is the answer.
_ANSWER = 0.7
_NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


@dataclass(frozen=True)
class RankedCause:
    """A cause with its ``score``, the share of the evidence that speaks for it (0 to 1), what speaks for it
    (``evidence``) and ``against`` it, what to do, and how to verify that it helped."""

    cause: str
    layer: str
    score: float
    evidence: tuple[str, ...]
    advice: str
    verify: str
    against: tuple[str, ...] = ()


@dataclass(frozen=True)
class Level:
    """A layer, or a group of causes, and the share of the evidence that speaks for it (0 to 1)."""

    name: str
    score: float


@dataclass(frozen=True)
class Explanation:
    """The causes of a failure, best first; none, or ``unknown`` alone, where nothing speaks.

    ``summary`` is the answer in a sentence, at the level that the evidence supports, and ``action`` what
    serves all the causes that are left at that level. ``layer`` and ``group`` are the best of each.
    ``decide`` is the further fact that would tell those causes apart, where one is missing; ``note`` says how
    far the answer goes.
    """

    summary: str
    layer: Optional[Level]
    group: Optional[Level]
    action: str
    causes: tuple[RankedCause, ...]
    facts: Facts
    decide: Optional[str]
    note: str


def explain(log: Log, facts: Facts) -> Explanation:
    """Why the program that printed ``log`` failed, on a machine with these ``facts``."""
    weighed = weigh(log, facts)
    shares = scores(weighed.points, calibration())
    named = _shown(shares, weighed)
    ranked = tuple(_ranked(name, share, weighed, facts.true_gfx) for name, share in named)
    layer, group = _best_layer(shares, weighed), _best_group(shares)
    summary, action = _answer(ranked, layer, group, weighed, facts.true_gfx)
    notes = (_note(ranked), *(f"{line[0].upper()}{line[1:]}." for line in ruled_out(weighed)))
    return Explanation(
        summary, layer, group, action, ranked, facts, _decide(ranked, layer), " ".join(filter(None, notes))
    )


def _best_layer(shares: Iterable[tuple[str, float]], weighed: Weighed) -> Optional[Level]:
    """The layer that has most of the shares: each cause's where its evidence stands, that of ``unknown``
    where the failure is reported. A layer that has parts counts theirs where no part is certain."""
    found: dict[str, float] = defaultdict(float)
    for cause, share in shares:
        evidence = weighed.places.get(cause) or {weighed.speaking: 1.0}
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


def _shown(shares: list[tuple[str, float]], weighed: Weighed) -> list[tuple[str, float]]:
    """The causes to tell. "Not known" is the first only where nothing speaks: else it stands after the
    others."""
    others = [pair for pair in shares if pair[0] != "unknown"]
    if shares[0][0] != "unknown" or not others:
        return others
    return [*others, shares[0]] if weighed.speaking else shares


def _answer(
    ranked: tuple[RankedCause, ...],
    layer: Optional[Level],
    group: Optional[Level],
    weighed: Weighed,
    silicon: Optional[str],
) -> tuple[str, str]:
    """(summary, action) at the lowest level that is sure enough."""
    if not ranked or ranked[0].cause == "unknown":
        return _from_facts(weighed)
    first = ranked[0]
    if first.score >= _ANSWER:
        return f"{causes.cause(first.cause).title}.", first.advice
    left = [each for each in ranked if each.cause != "unknown" and each.score >= _RIVAL * first.score]
    if group and group.score >= _ANSWER:
        row = causes.group(group.name)
        among = [each for each in left if causes.cause(each.cause).group == group.name]
        return f"{row.title}{_which(len(among))}", causes.chosen(row.advice, weighed.words, silicon)
    place = causes.layer(layer.name) if layer and layer.score >= _ANSWER else None
    if place and place.fails:
        inside = (
            f" inside {WORDS[weighed.primitive]}" if weighed.primitive and "MIOpen" in place.fails else ""
        )
        advice = causes.chosen(place.advice, weighed.words, silicon) if place.advice else first.advice
        return f"{place.fails}{inside}{_which(len(left))}", advice
    return f"{causes.cause(first.cause).title}, perhaps: the evidence is thin.", first.advice


def _which(reasons: int) -> str:
    return (
        f"; which of {_NUMBERS.get(reasons, str(reasons))} reasons, the log does not tell."
        if reasons > 1
        else "."
    )


def _from_facts(weighed: Weighed) -> tuple[str, str]:
    """Where the log tells nothing: what chip and stack cannot do together, if anything."""
    unknown = causes.advice_for("unknown", weighed.words)
    if weighed.failing:
        return f"The log does not tell why; but by the facts {weighed.failing[0].says}.", unknown
    return "Not enough evidence: nothing in the log or the facts points to a cause.", unknown


def _ranked(cause: str, score: float, weighed: Weighed, silicon: Optional[str]) -> RankedCause:
    row = causes.cause(cause)
    by_weight = sorted(
        ((by_cause[cause], says) for says, by_cause in weighed.pieces if cause in by_cause),
        key=lambda pair: -abs(pair[0]),
    )
    return RankedCause(
        cause=cause,
        layer=weighed.layers.get(cause) or (weighed.speaking if cause == "unknown" else None) or row.layer,
        score=round(score, 3),
        evidence=tuple(says for weight, says in by_weight if weight > 0),
        advice=causes.advice_for(cause, weighed.words, silicon),
        verify=row.verify,
        against=tuple(says for weight, says in by_weight if weight < 0),
    )


def _decide(ranked: tuple[RankedCause, ...], layer: Optional[Level]) -> Optional[str]:
    if not ranked or ranked[0].score >= _SURE:
        return None
    if ranked[0].score < _ANSWER and layer and layer.score >= _ANSWER and causes.layer(layer.name).confirm:
        return causes.layer(layer.name).confirm
    if len(ranked) == 1:
        return causes.question(ranked[0].cause, "unknown")
    first, second = ranked[0], ranked[1]
    return causes.question(first.cause, second.cause) if second.score >= _RIVAL * first.score else None


def _note(ranked: tuple[RankedCause, ...]) -> str:
    if not ranked:
        return "Not enough evidence: nothing in the log or the facts points to a cause."
    if ranked[0].cause == "unknown":
        return "Not enough evidence for one cause; what follows are guesses."
    if ranked[0].score < 0.5:
        return "The evidence is thin: the first cause is less likely than all others together."
    return ""
