"""From a log and facts to ranked causes: what each line and fact says is added up, then made a score."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Optional

from rocmprobe.explain.log_facts import Facts
from rocmprobe.explain.signatures import Calibration, Hit, calibration, excluded, found, rules
from rocmprobe.explain.situations import situations
from rocmprobe.knowledge import causes
from rocmprobe.text.log import Log

#: A second cause with less than this share of the best one's score is not worth a question.
_RIVAL = 0.1
#: From this score on no question is left between the first two.
_SURE = 0.9


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
class Explanation:
    """The causes of a failure, best first; none, or ``unknown`` first, where the evidence is not enough.

    ``decide`` is the one further fact that would distinguish the first two, where one is missing; ``note``
    says in a sentence how far the answer goes.
    """

    causes: tuple[RankedCause, ...]
    facts: Facts
    decide: Optional[str]
    note: str


@dataclass(frozen=True)
class Weighed:
    """All that speaks for or against causes: ``points`` added up, and each piece of evidence with its own.
    ``named`` are the causes that lines speak for, not facts alone; ``excluded`` those that facts rule out
    although something speaks for them, each with why."""

    points: Mapping[str, float]
    pieces: tuple[tuple[str, Mapping[str, float]], ...]
    layers: Mapping[str, str]
    named: frozenset[str]
    words: frozenset[str]
    excluded: Mapping[str, str] = field(default_factory=dict)


def explain(log: Log, facts: Facts) -> Explanation:
    """Why the program that printed ``log`` failed, on a machine with these ``facts``."""
    weighed = weigh(log, facts)
    shares = scores(weighed.points, calibration())
    named = [
        pair for place, pair in enumerate(shares) if pair[0] != "unknown" or (place == 0 and len(shares) > 1)
    ]
    ranked = tuple(_ranked(name, share, weighed, facts.true_gfx) for name, share in named)
    notes = (_note(ranked), *(f"{line[0].upper()}{line[1:]}." for line in ruled_out(weighed)))
    return Explanation(ranked, facts, _decide(ranked), " ".join(filter(None, notes)))


def weigh(log: Log, facts: Facts) -> Weighed:
    """The evidence that signatures and rules find."""
    hits = found(log.lines)
    names = {hit.signature.name for hit in hits}
    kinds = {hit.signature.kind for hit in hits}
    words = situations(facts, log) | names | kinds
    pieces = [(_quoted(hit), hit.signature.points) for hit in hits]
    pieces += [(rule.says, rule.points) for rule in rules() if causes.all_hold(rule.when, words)]
    points: dict[str, float] = defaultdict(float)
    for _, by_cause in pieces:
        for cause, weight in by_cause.items():
            points[cause] += weight
    ruled_out = {
        row.cause: row.says
        for row in excluded()
        if causes.all_hold(row.when, words) and points.pop(row.cause, 0.0) > 0
    }
    named = {cause for hit in hits for cause, weight in hit.signature.points.items() if weight > 0}
    return Weighed(points, tuple(pieces), _layers(hits), frozenset(named - set(ruled_out)), words, ruled_out)


def ruled_out(weighed: Weighed) -> tuple[str, ...]:
    """What facts rule out, each in words with the reason."""
    return tuple(f"not {cause}: {says}" for cause, says in weighed.excluded.items())


def scores(points: Mapping[str, float], by: Calibration) -> list[tuple[str, float]]:
    """Causes with points and ``unknown``, each with its share of exp(sharpness * points), the best first."""
    counted = {cause: value for cause, value in points.items() if value > 0}
    counted["unknown"] = max(by.unknown, counted.get("unknown", 0.0))
    weights = {cause: math.exp(by.sharpness * value) for cause, value in counted.items()}
    total = sum(weights.values())
    return sorted(((cause, weight / total) for cause, weight in weights.items()), key=lambda pair: -pair[1])


def _quoted(hit: Hit) -> str:
    first, times = hit.lines[0], sum(line.count for line in hit.lines)
    again = f" (and {times - 1} more like it)" if times > 1 else ""
    return f"line {first.number}: {first.text.strip()}{again}: {hit.signature.says}"


def _layers(hits: Iterable[Hit]) -> dict[str, str]:
    """The layer in which causes sit here, where the signature that speaks for one the most names it."""
    strongest: dict[str, tuple[float, Optional[str]]] = {}
    for signature in (hit.signature for hit in hits):
        most = max(signature.points.values(), default=0.0)
        for cause, weight in signature.points.items():
            if weight == most > strongest.get(cause, (0.0, None))[0]:
                strongest[cause] = weight, signature.layer
    return {cause: layer for cause, (_, layer) in strongest.items() if layer}


def _ranked(cause: str, score: float, weighed: Weighed, silicon: Optional[str]) -> RankedCause:
    row = causes.cause(cause)
    by_weight = sorted(
        ((by_cause[cause], says) for says, by_cause in weighed.pieces if cause in by_cause),
        key=lambda pair: -abs(pair[0]),
    )
    return RankedCause(
        cause=cause,
        layer=weighed.layers.get(cause, row.layer),
        score=round(score, 3),
        evidence=tuple(says for weight, says in by_weight if weight > 0),
        advice=causes.advice_for(cause, weighed.words, silicon),
        verify=row.verify,
        against=tuple(says for weight, says in by_weight if weight < 0),
    )


def _decide(ranked: tuple[RankedCause, ...]) -> Optional[str]:
    if not ranked or ranked[0].score >= _SURE:
        return None
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
