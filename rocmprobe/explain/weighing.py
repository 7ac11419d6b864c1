"""Sum of the evidence for each cause: points of lines, rules and relations."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Optional

from rocmprobe.explain.extraction import LogStructure
from rocmprobe.explain.inference import ANYWHERE, Inference, LogContext
from rocmprobe.explain.log_facts import Facts
from rocmprobe.explain.reasoning import reason
from rocmprobe.explain.signatures import Calibration, Hit, Signature, found, rules
from rocmprobe.explain.situations import WORDS, words_and_answers
from rocmprobe.knowledge import causes
from rocmprobe.knowledge.compatibility import Answer
from rocmprobe.text.log import Log


@dataclass(frozen=True)
class Weighed:
    """Evidence for and against causes.

    ``pieces`` has each piece of evidence with its own points. ``points`` has the sum for each cause that
    facts do not exclude. ``excluded`` has the reason for each cause that facts exclude although other
    evidence supports it. ``named`` are the causes that at least one line of the log supports, without the
    causes in ``excluded``. ``places[cause][layer]`` is the weight of the evidence for ``cause`` that belongs
    to ``layer``. ``primitive`` is the operation that the vendor library had to compute. ``elsewhere`` says
    why AMD's stack has no part in the failure, or is "".
    """

    points: Mapping[str, float]
    pieces: tuple[tuple[str, Mapping[str, float]], ...]
    layers: Mapping[str, str]
    named: frozenset[str]
    words: frozenset[str]
    excluded: Mapping[str, str] = field(default_factory=dict)
    reporting_layer: Optional[str] = None
    places: Mapping[str, Mapping[Optional[str], float]] = field(default_factory=dict)
    primitive: Optional[str] = None
    refused: tuple[Answer, ...] = ()
    elsewhere: str = ""
    remedies: Mapping[str, str] = field(default_factory=dict)
    clauses: Mapping[str, str] = field(default_factory=dict)


def weigh(log: Log, facts: Facts, structure: Optional[LogStructure] = None) -> Weighed:
    """Add up the evidence from signatures, rules, and the relations between chip and stack.

    The rules of ``explain/reasoning.py`` are only used if ``structure`` is given. Leave ``structure`` out for
    evidence from rocmprobe's own tests.
    """
    hits = found(line for line in log.lines if not (structure and line.number in structure.excused))
    situations, answered = words_and_answers(facts, log)
    primitive = next((word for word in WORDS if word in situations), None)
    words = situations | {hit.signature.name for hit in hits} | {hit.signature.kind for hit in hits}
    showing = _showing(hits, facts)
    pieces = [(_quoted(hit), hit.signature.points) for hit in hits]
    pieces += [(rule.says, rule.points) for rule in rules() if causes.all_hold(rule.when, words)]
    pieces += [(each.says, given) for each in answered if (given := each.points(showing))]
    refused = tuple(sorted((each for each in answered if not each.holds), key=lambda each: not each.stops))
    inferred = reason(LogContext(structure, facts, words, hits, refused, log.lines)) if structure else ()
    elsewhere = next((each.says for each in inferred if each.elsewhere), "")
    if elsewhere:
        pieces = [(says, kept) for says, points in pieces if (kept := _of_any_gpu(points))]
    pieces += [(each.says, each.points) for each in inferred if not (each.elsewhere and pieces)]
    points: dict[str, float] = defaultdict(float)
    for _, by_cause in pieces:
        for cause, weight in by_cause.items():
            points[cause] += weight
    owner = next((each.layer for each in inferred if each.layer), None)
    speaking = owner or _speaking(hits, points)
    settled = {cause: each.says for each in answered for cause in each.settled}
    excluded = {cause: says for cause, says in settled.items() if points.pop(cause, 0.0) > 0}
    named = {cause for hit in hits for cause, weight in hit.signature.points.items() if weight > 0}
    return Weighed(
        points, tuple(pieces), _layers(hits), frozenset(named - set(excluded)), words, excluded, speaking,
        _places(hits, answered, showing, speaking, inferred), primitive, refused,
        elsewhere, *_by_cause(inferred),
    )  # fmt: skip


def _by_cause(inferred: Iterable[Inference]) -> tuple[dict[str, str], dict[str, str]]:
    remedies, specifics = {}, {}
    for each in inferred:
        for cause, weight in each.points.items():
            if each.remedy and weight > 0:
                remedies[cause], specifics[cause] = each.remedy, each.says
    return remedies, specifics


def ruled_out(weighed: Weighed) -> tuple[str, ...]:
    """Return the causes that facts exclude although other evidence supports them, each with the reason."""
    return tuple(f"not {cause}: {says}" for cause, says in weighed.excluded.items())


def scores(points: Mapping[str, float], by: Calibration) -> list[tuple[str, float]]:
    """Return (cause, share) pairs, the largest share first. The shares add up to 1.

    The share of a cause is proportional to ``exp(by.sharpness * points[cause])``. ``unknown`` is always
    included. Causes without positive points are left out.
    """
    counted = {cause: value for cause, value in points.items() if value > 0}
    counted["unknown"] = max(by.unknown, counted.get("unknown", 0.0))
    weights = {cause: math.exp(by.sharpness * value) for cause, value in counted.items()}
    total = sum(weights.values())
    return sorted(((cause, weight / total) for cause, weight in weights.items()), key=lambda pair: -pair[1])


def _showing(hits: Iterable[Hit], facts: Facts) -> frozenset[str]:
    """Return the names of the symptoms that the log and the facts show, e.g. "hang".

    If the log has fatal lines, only fatal lines count.
    """
    of_kind: dict[bool, set[str]] = {True: set(), False: set()}
    for signature in (hit.signature for hit in hits):
        if signature.shows:
            of_kind[signature.kind == "fatal"].add(signature.shows)
    fatal = any(hit.signature.kind == "fatal" for hit in hits)
    ended = {"hang": "hang", "segv": "died"}.get(facts.exit or "")
    return frozenset(of_kind[True] if fatal else of_kind[False] | ({ended} if ended else set()))


def _layer_of(signature: Signature) -> Optional[str]:
    if signature.layer or not signature.points:
        return signature.layer
    return causes.cause(max(signature.points, key=lambda cause: signature.points[cause])).layer


def _speaking(hits: Iterable[Hit], points: Mapping[str, float]) -> Optional[str]:
    """Return the layer that reports the failure, or None.

    Use fatal lines, or else lines about the end of the program.

    Ignore a line if other evidence cancels more than half of its points.
    """
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
    return f"line {first.number}: {first.text.strip()}{again}: {hit.signature.says}"


def _layers(hits: Iterable[Hit]) -> dict[str, str]:
    strongest: dict[str, tuple[float, Optional[str]]] = {}
    for signature in (hit.signature for hit in hits):
        most = max(signature.points.values(), default=0.0)
        for cause, weight in signature.points.items():
            if weight == most > strongest.get(cause, (0.0, None))[0]:
                strongest[cause] = weight, signature.layer
    return {cause: layer for cause, (_, layer) in strongest.items() if layer and not causes.parts_of(layer)}


def _places(
    hits: Iterable[Hit],
    answered: Iterable[Answer],
    showing: frozenset[str],
    speaking: Optional[str],
    inferred: Iterable[Inference],
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
    for inference in inferred:
        for cause, weight in inference.points.items():
            if weight > 0:
                found_places[cause][inference.layer or causes.cause(cause).layer] += weight
    return found_places


def _of_any_gpu(points: Mapping[str, float]) -> dict[str, float]:
    return {name: weight for name, weight in points.items() if causes.cause(name).group in ANYWHERE}
