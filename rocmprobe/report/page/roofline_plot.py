"""The roofline as a drawing: the limits of the device, and the points of forward convolution."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import log10
from typing import Optional

from markupsafe import Markup

from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import BadInput, Outcome, Results
from rocmprobe.model.roofline import Roof, roof, work
from rocmprobe.report import text
from rocmprobe.report.page import plots

#: Settings that are drawn: more would hide each other.
_MOST = 3


@dataclass(frozen=True)
class Point:
    """Operations for each byte that has to move, and operations a second, of one problem."""

    intensity: float
    rate: float


@dataclass(frozen=True)
class Roofline:
    """One dtype on one device: ``roof`` are the best rates that were measured; points by setting."""

    label: str
    settings: tuple[str, ...]
    plot: Markup


def rooflines(results: Results) -> tuple[Roofline, ...]:
    """A drawing for each device and dtype of which both yardsticks and at least one problem were timed."""
    points: dict[tuple[str, str], dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    roofs: dict[tuple[str, str], list[Roof]] = defaultdict(list)
    for outcome in results.outcomes:
        ceiling, point = roof(outcome.timings), _point(outcome)
        if outcome.check == "throughput" and ceiling and point:
            points[outcome.device, outcome.dtype][outcome.setting].append(point)
            roofs[outcome.device, outcome.dtype].append(ceiling)
    found = []
    for number, (place, by_setting) in enumerate(points.items()):
        names = _drawn(results, list(by_setting))
        best = Roof(max(each.flops for each in roofs[place]), max(each.bytes for each in roofs[place]))
        label = f"Roofline, {place[1]} on {place[0]}"
        series = {name: [(each.intensity, each.rate) for each in by_setting[name]] for name in names}
        found.append(Roofline(label, tuple(names), _plot(best, series, f"roofline-{number}", label)))
    return tuple(found)


def _drawn(results: Results, names: list[str]) -> list[str]:
    """The default, the recommended setting, the bypass, then others as they come."""
    chosen = results.recommendation.configuration.setting if results.recommendation else None
    wanted = dict.fromkeys(filter(None, ("default", chosen, "bypass", *names)))
    return [name for name in wanted if name in names][:_MOST]


def _point(outcome: Outcome) -> Optional[Point]:
    took = text.numeric(outcome.timings.get("fwd"))
    if not took or took < 0 or not outcome.problem:
        return None
    try:
        todo = work(parse_problem(outcome.problem), "fwd")
    except BadInput:
        return None
    rate = todo.flops / took
    return Point(todo.intensity, rate) if 0 < rate < 1e18 else None


def _plot(best: Roof, series: dict[str, list[tuple[float, float]]], name: str, label: str) -> Markup:
    """Both axes are logarithmic; the roof bends where bandwidth stops being the limit."""
    placed = [place for places in series.values() for place in places]
    bend = best.flops / best.bytes
    low = min([bend, *(x for x, _ in placed)]) / 2
    high = max([bend, *(x for x, _ in placed)]) * 2
    line = [(x, min(best.flops, best.bytes * x)) for x in (low, bend, high)]
    rates = f"{text.number(best.flops / 1e9)} GFLOP/s and {text.number(best.bytes / 1e9)} GB/s"
    return plots.scatter(
        [(log10(x), log10(y)) for x, y in line],
        {each: [(log10(x), log10(y)) for x, y in places] for each, places in series.items()},
        name,
        f"{label}: at most {rates}; {text.count(len(placed), 'point')}",
        ("FLOP per byte", "GFLOP/s"),
        (lambda x: f"{10**x:g}", lambda y: f"{10 ** (y - 9):g}"),
    )
