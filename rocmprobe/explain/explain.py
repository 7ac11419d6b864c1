"""From a log and facts to ranked causes: what each line and fact says is added up, then made a score.

An answer goes as far down as the evidence does: to a cause, to a group of causes that share much of the
cure, or to the layer that speaks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Optional

from rocmprobe.explain.log_facts import Facts
from rocmprobe.explain.primitives import WORDS
from rocmprobe.explain.several_runs import last_failing_run
from rocmprobe.explain.signatures import Calibration, Hit, Signature, calibration, found, rules
from rocmprobe.explain.situations import words_and_answers
from rocmprobe.knowledge import causes
from rocmprobe.knowledge.compatibility import Answer, failing
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


@dataclass(frozen=True)
class Weighed:
    """All that speaks for or against causes: ``points`` added up, and each piece of evidence with its own.

    ``named`` are the causes that lines speak for, not facts alone; ``excluded`` those that facts rule out
    although something speaks for them, each with why. ``layers`` is where causes sit here, ``speaking`` the
    layer whose text reports the failure, ``places`` the layers in whose texts the evidence for each cause
    stands, with its weight. ``primitive`` is what was asked of the vendor library, ``failing`` what chip and
    stack cannot do together.
    """

    points: Mapping[str, float]
    pieces: tuple[tuple[str, Mapping[str, float]], ...]
    layers: Mapping[str, str]
    named: frozenset[str]
    words: frozenset[str]
    excluded: Mapping[str, str] = field(default_factory=dict)
    speaking: Optional[str] = None
    places: Mapping[str, Mapping[Optional[str], float]] = field(default_factory=dict)
    primitive: Optional[str] = None
    failing: tuple[Answer, ...] = ()


def explain(log: Log, facts: Facts) -> Explanation:
    """Why the program that printed ``log`` failed, on a machine with these ``facts``."""
    log, runs = last_failing_run(log)
    weighed = weigh(log, facts)
    shares = scores(weighed.points, calibration())
    named = _shown(shares, weighed)
    ranked = tuple(_ranked(name, share, weighed, facts.true_gfx) for name, share in named)
    layer, group = _best_layer(shares, weighed), _best_group(shares)
    summary, action = _answer(ranked, layer, group, weighed, facts.true_gfx)
    notes = (runs, _note(ranked), *(f"{line[0].upper()}{line[1:]}." for line in ruled_out(weighed)))
    return Explanation(
        summary, layer, group, action, ranked, facts, _decide(ranked, layer), " ".join(filter(None, notes))
    )


def weigh(log: Log, facts: Facts) -> Weighed:
    """The evidence that signatures, rules, and the relations of chip and stack find."""
    hits = found(log.lines)
    situations, answered = words_and_answers(facts, log)
    primitive = next((word for word in WORDS if word in situations), None)
    words = situations | {hit.signature.name for hit in hits} | {hit.signature.kind for hit in hits}
    showing = _showing(hits, facts)
    pieces = [(_quoted(hit), hit.signature.points) for hit in hits]
    pieces += [(rule.says, rule.points) for rule in rules() if causes.all_hold(rule.when, words)]
    pieces += [(each.says, given) for each in answered if (given := each.points(showing))]
    points: dict[str, float] = defaultdict(float)
    for _, by_cause in pieces:
        for cause, weight in by_cause.items():
            points[cause] += weight
    speaking = _speaking(hits, points)
    settled = {cause: each.says for each in answered for cause in each.settled}
    excluded = {cause: says for cause, says in settled.items() if points.pop(cause, 0.0) > 0}
    named = {cause for hit in hits for cause, weight in hit.signature.points.items() if weight > 0}
    return Weighed(
        points, tuple(pieces), _layers(hits), frozenset(named - set(excluded)), words, excluded,
        speaking, _places(hits, answered, showing, speaking), primitive, failing(answered),
    )  # fmt: skip


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


def _showing(hits: Iterable[Hit], facts: Facts) -> frozenset[str]:
    """The symptoms of a failure: of lines that tell why it failed, else of how it ended."""
    of_kind: dict[bool, set[str]] = {True: set(), False: set()}
    for signature in (hit.signature for hit in hits):
        if signature.shows:
            of_kind[signature.kind == "fatal"].add(signature.shows)
    fatal = any(hit.signature.kind == "fatal" for hit in hits)
    ended = {"hang": "hang", "segv": "died"}.get(facts.exit or "")
    return frozenset(of_kind[True] if fatal else of_kind[False] | ({ended} if ended else set()))


def _layer_of(signature: Signature) -> Optional[str]:
    """The layer whose text a signature is: its own, or the usual one of the cause that it speaks for the
    most."""
    if signature.layer or not signature.points:
        return signature.layer
    return causes.cause(max(signature.points, key=lambda cause: signature.points[cause])).layer


def _speaking(hits: Iterable[Hit], points: Mapping[str, float]) -> Optional[str]:
    """The layer whose text reports the failure: that of the fatal lines, else of how it ended. A text that
    others take most of its weight from reports none."""
    for kind in ("fatal", "ending"):
        weights: dict[str, float] = defaultdict(float)
        for signature in (hit.signature for hit in hits if hit.signature.kind == kind):
            most = max(signature.points.values(), default=0.0)
            left = max((points.get(cause, 0.0) for cause in signature.points), default=0.0)
            if (layer := _layer_of(signature)) and left >= most / 2:
                weights[layer] += max(most, 0.1)
        if weights:
            return max(weights, key=lambda layer: weights[layer])
    return None


def _quoted(hit: Hit) -> str:
    first, times = hit.lines[0], sum(line.count for line in hit.lines)
    again = f" (and {times - 1} more like it)" if times > 1 else ""
    return f"line {first.number}: {first.quoted.strip()}{again}: {hit.signature.says}"


def _layers(hits: Iterable[Hit]) -> dict[str, str]:
    """The layer in which causes sit here, where the signature that speaks for one the most names it."""
    strongest: dict[str, tuple[float, Optional[str]]] = {}
    for signature in (hit.signature for hit in hits):
        most = max(signature.points.values(), default=0.0)
        for cause, weight in signature.points.items():
            if weight == most > strongest.get(cause, (0.0, None))[0]:
                strongest[cause] = weight, signature.layer
    return {cause: layer for cause, (_, layer) in strongest.items() if layer and not causes.parts_of(layer)}


def _places(
    hits: Iterable[Hit], answered: Iterable[Answer], showing: frozenset[str], speaking: Optional[str]
) -> Mapping[str, Mapping[Optional[str], float]]:
    found_places: dict[str, dict[Optional[str], float]] = defaultdict(lambda: defaultdict(float))
    for signature in (hit.signature for hit in hits):
        for cause, weight in signature.points.items():
            if weight > 0:
                found_places[cause][signature.layer or causes.cause(cause).layer] += weight
    for each in answered:
        for cause, weight in each.points(showing).items():
            if weight > 0:
                found_places[cause][speaking or causes.cause(cause).layer] += weight
    return found_places


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
        layer=weighed.layers.get(cause, row.layer),
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
