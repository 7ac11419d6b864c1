"""Tables for a run with ``--shapes``: the program's step time under each setting, and the time of each
problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.assessment import by_given_problem, computed_seconds, timed_problems
from rocmprobe.judge.recommendation.step_time import counted, shapes_of
from rocmprobe.model.results import DIRECTIONS, Outcome, Results, StepTime
from rocmprobe.model.shapes import Shapes, Steps
from rocmprobe.report import text
from rocmprobe.report.page.layout import Table
from rocmprobe.report.states import worst


@dataclass(frozen=True)
class Program:
    """Tables about the recorded program."""

    caption: str
    settings: Table
    setting: str
    problems: Table


def program(results: Results) -> Optional[Program]:
    """Return the tables of the recorded program, or None if the run has no recorded program."""
    shapes = shapes_of(results)
    if shapes is None:
        return None
    rows = {each.setting: each for each in reversed(results.step_times)}
    chosen = recommended(results)
    setting = chosen.setting if chosen else "default" if "default" in rows else next(iter(rows), "")
    return Program(_caption(results, shapes), _settings(results, shapes), setting,
                   _problems(results, shapes, setting))  # fmt: skip


def recommended(results: Results) -> Optional[StepTime]:
    """Return the step time under the recommended setting on the first device, or None if not timed."""
    return next((each for each in results.step_times if each.setting == results.recommended), None)


def sentence(results: Results) -> str:
    """Return a sentence on the step time under the recommended setting, or "" if this time is unknown."""
    found, shapes = recommended(results), shapes_of(results)
    if found is None or shapes is None or found.convolution_seconds is None:
        return ""
    if found.seconds is None or shapes.steps is None:
        what = "step of your program" if found.per == "step" else "run of your program"
        return (
            f"the convolutions of a {what} take {text.seconds(found.convolution_seconds)} under "
            f"“{found.setting}” ({found.reason})"
        )
    return (
        f"a step of your program takes {_spread(found)} under “{found.setting}” (predicted); "
        f"it took {text.seconds(shapes.steps.seconds)} when recorded"
    )


def _inference(results: Results) -> bool:
    return results.purpose == "inference"


def _caption(results: Results, shapes: Shapes) -> str:
    note = "No training step of the program was recorded: times cover all of its convolutions."
    if _inference(results):
        note = "The run is for inference: times cover all forward convolutions of the program."
    elif shapes.steps:
        note = _recorded(shapes.steps)
    here = results.machine.value("torch.version")
    others = [each for each in shapes.torch if here and each != here]
    return f"{note} The program ran with torch {', '.join(others)}, this run with {here}." if others else note


def _recorded(steps: Steps) -> str:
    where = f"Recorded on {steps.device or 'no device'} with {text.count(steps.threads, 'CPU thread')}"
    note = f"{where}: a step takes {text.spread(steps.seconds, steps.seconds_p10, steps.seconds_p90)}"
    alike = f"{steps.alike} of {text.count(steps.made, 'step')} were alike"
    if steps.rest_seconds is None:
        return f"{note}; {alike}."
    rest = text.seconds(steps.rest_seconds)
    return (
        f"{note}; {alike}. {rest} of a step is outside convolution: predictions include this recorded time."
    )


def _settings(results: Results, shapes: Shapes) -> Table:
    several = len({each.device for each in results.step_times}) > 1
    recorded = shapes.steps.seconds if shapes.steps else None
    rows = []
    for each in results.step_times:
        took, convolving = each.seconds, each.convolution_seconds
        share = f"{100 * convolving / took:.0f} %" if took and convolving is not None else ""
        against = f"{took / recorded:.2f}×" if took and recorded else ""  # noqa: RUF001
        rows.append((
            f"{each.setting} on {each.device}" if several else each.setting,
            "" if took is None else _spread(each), text.seconds(convolving), share, against,
            f"{each.timed} of {each.convolutions}", each.reason,
        ))  # fmt: skip
    header = (
        "setting", "step, predicted (p10 to p90)", "convolutions", "share of the step", "of the recorded",
        "convolutions timed", "why no step time",
    )  # fmt: skip
    return Table(header, tuple(rows))


def _spread(each: StepTime) -> str:
    if each.seconds_p10 is None or each.seconds_p90 is None:
        return text.seconds(each.seconds)
    return text.spread(each.seconds, each.seconds_p10, each.seconds_p90)


def _problems(results: Results, shapes: Shapes, setting: str) -> Table:
    timed = {
        problem: outcome
        for (device, name, problem), outcome in reversed(timed_problems(results).items())
        if name == setting
    }
    counts = counted(results, shapes)
    asked: dict[str, list[Outcome]] = defaultdict(list)
    for problem, outcome in by_given_problem(results, results.outcomes):
        if outcome.setting == setting:
            asked[problem].append(outcome)
    took = {
        problem: computed_seconds(timed[problem], its, DIRECTIONS, "_mean")
        for problem, its in counts.items()
        if problem in timed
    }
    total = sum(filter(None, took.values()))

    def share(problem: str) -> str:
        seconds = took.get(problem)
        return "" if seconds is None or not total else f"{100 * seconds / total:.0f} %"

    in_step = shapes.steps and not _inference(results)
    rows = sorted(shapes.problems, key=lambda each: -(took.get(each.problem) or 0.0))
    return Table(
        ("problem", "in a step" if in_step else "in all", "in the program", "state", "time", "share"),
        tuple(
            (each.problem, _written(counts[each.problem]), _written(each.counts),
             worst(asked[each.problem]).state if asked[each.problem] else "not run",
             text.seconds(took.get(each.problem)) if each.problem in timed else "", share(each.problem))
            for each in rows
        ),
    )  # fmt: skip


def _written(counts: Mapping[str, int]) -> str:
    """Return the counts of fwd, bwd-data and bwd-weights as text, e.g. "4 / 4 / 4"."""
    return " / ".join(str(counts.get(direction, 0)) for direction in DIRECTIONS)
