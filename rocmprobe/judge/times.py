"""Times of convolutions under each setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional

from rocmprobe.judge.noise import time_of
from rocmprobe.model.results import Outcome, Results
from rocmprobe.model.results_file import from_json
from rocmprobe.model.shapes import Shapes


def timed_problems(results: Results) -> dict[tuple[str, str, str], Outcome]:
    """Return the outcomes of successful timings, keyed by (device, setting, problem)."""
    timed = (
        outcome
        for outcome in results.outcomes
        if outcome.check == "throughput" and outcome.problem and outcome.works
    )
    return {
        (outcome.device, outcome.setting, problem): outcome
        for problem, outcome in by_given_problem(results, timed)
    }


def by_given_problem(results: Results, outcomes: Iterable[Outcome]) -> Iterator[tuple[str, Outcome]]:
    """Yield (problem, outcome) for each outcome about a problem.

    An outcome under a channels-last setting is valid for two problems: with and without "-nhwc". Yield the
    outcome once for each of these problems that ``--shapes`` lists or that a setting without channels-last
    tested, or else once for the problem without "-nhwc".
    """
    channels_last = {setting.name for setting in results.settings if setting.channels_last}
    asked = {
        (outcome.check, outcome.problem)
        for outcome in results.outcomes
        if outcome.setting not in channels_last
    }
    recorded = {row["problem"] for row in _recorded(results)}
    for outcome in outcomes:
        problem = outcome.problem
        if problem is None:
            continue
        if outcome.setting not in channels_last:
            yield problem, outcome
            continue
        packed = problem.removesuffix("-nhwc")
        forms = [form for form in (packed, problem) if form in recorded or (outcome.check, form) in asked]
        for form in forms or [packed]:
            yield form, outcome


def computed_seconds(
    outcome: Outcome, counts: Mapping[str, int], directions: Iterable[str], quantile: str = ""
) -> Optional[float]:
    """Return the total seconds for ``counts[direction]`` computations in each direction.

    Return None if a needed time is missing. ``quantile`` is "" for the median, "_mean", "_p10" or "_p90".
    """
    total = 0.0
    for direction in directions:
        seconds = time_of(outcome.timings.get(direction.replace("-", "_") + quantile))
        if counts.get(direction) and seconds is None:
            return None
        total += counts.get(direction, 0) * (seconds or 0.0)
    return total


def counts_by_problem(results: Results) -> dict[str, Mapping[str, int]]:
    """Return how often the program computes each of its convolutions, by direction, or {} if unknown."""
    counts = {row["problem"]: row["counts"] for row in _recorded(results)}
    return counts if any(sum(by_direction.values()) for by_direction in counts.values()) else {}


def shapes_of(results: Results) -> Optional[Shapes]:
    """Return the recorded shapes of the program, or None if ``--shapes`` was not given.

    Raise BadInput if the shapes are invalid.
    """
    shapes = results.options.get("shapes")
    return from_json(Shapes, shapes) if shapes else None


def _recorded(results: Results) -> Sequence[Mapping[str, Any]]:
    shapes = results.options.get("shapes")
    rows: Sequence[Mapping[str, Any]] = shapes["problems"] if shapes else ()
    return rows
