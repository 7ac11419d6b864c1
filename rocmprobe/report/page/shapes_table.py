"""Table for a run with ``--shapes``: the time of each of the program's problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.failures import worst
from rocmprobe.judge.times import by_given_problem, computed_seconds, shapes_of, timed_problems
from rocmprobe.model.results import DIRECTIONS, Outcome, Results
from rocmprobe.model.shapes import Shapes
from rocmprobe.report.tables import Table
from rocmprobe.text import readable as text


@dataclass(frozen=True)
class Program:
    """Table of the recorded program's problems, with states and times under ``setting``."""

    caption: str
    setting: str
    problems: Table


def program(results: Results) -> Optional[Program]:
    """Return the table of the recorded program, or None if the run has no recorded program."""
    shapes = shapes_of(results)
    if shapes is None:
        return None
    timed = dict.fromkeys(setting for _, setting, _ in timed_problems(results))
    wanted = (results.recommended, "default", *timed)
    setting = next((each for each in wanted if each and each in timed), "")
    return Program(_caption(results, shapes), setting, _problems(results, shapes, setting))


def _caption(results: Results, shapes: Shapes) -> str:
    note = "Times cover all convolutions of the program."
    if results.purpose == "inference":
        note = "The run is for inference: times cover all forward convolutions of the program."
    here = results.machine.value("torch.version")
    others = [each for each in shapes.torch if here and each != here]
    return f"{note} The program ran with torch {', '.join(others)}, this run with {here}." if others else note


def _problems(results: Results, shapes: Shapes, setting: str) -> Table:
    timed = {
        problem: outcome
        for (_, name, problem), outcome in reversed(timed_problems(results).items())
        if name == setting
    }
    directions = DIRECTIONS[:1] if results.purpose == "inference" else DIRECTIONS
    asked: dict[str, list[Outcome]] = defaultdict(list)
    for problem, outcome in by_given_problem(results, results.outcomes):
        if outcome.setting == setting:
            asked[problem].append(outcome)
    took = {
        each.problem: computed_seconds(timed[each.problem], each.counts, directions, "_mean")
        for each in shapes.problems
        if each.problem in timed
    }
    total = sum(filter(None, took.values()))

    def share(problem: str) -> str:
        seconds = took.get(problem)
        return "" if seconds is None or not total else f"{100 * seconds / total:.0f} %"

    rows = sorted(shapes.problems, key=lambda each: -(took.get(each.problem) or 0.0))
    return Table(
        ("problem", "computations", "state", "time", "share"),
        tuple(
            (each.problem, _written(each.counts),
             worst(asked[each.problem]).state if asked[each.problem] else "not run",
             text.seconds(took.get(each.problem)) if each.problem in timed else "", share(each.problem))
            for each in rows
        ),
    )  # fmt: skip


def _written(counts: Mapping[str, int]) -> str:
    """Return the counts of fwd, bwd-data and bwd-weights as text, e.g. "4 / 4 / 4"."""
    return " / ".join(str(counts.get(direction, 0)) for direction in DIRECTIONS)
