"""First calls as a table: what search and compilation take, cold and warm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from markupsafe import Markup

from rocmprobe.judge.findings.start_up import FirstCalls, StartUp, start_ups
from rocmprobe.model.results import Results
from rocmprobe.report import text
from rocmprobe.report.page import plots
from rocmprobe.report.page.measures import Table

_MOST_PLOTS, _MOST_BARS = 4, 12


@dataclass(frozen=True)
class StartUps:
    """First calls as a table, and of the first problems as ``plots`` (label and SVG)."""

    caption: str
    table: Table
    plots: tuple[tuple[str, Markup], ...]


def start_up(results: Results) -> Optional[StartUps]:
    """First calls under each setting, cold and warm, beside the calls that follow."""
    found = start_ups(results)
    if not found:
        return None
    devices = {each.device for each in found}
    survives = {True: "yes", False: "no", None: "too few starts to tell"}
    rows = tuple(
        (
            each.problem if len(devices) == 1 else f"{each.problem} ({each.device})",
            each.setting,
            _first_calls(each.cold),
            _first_calls(each.warm),
            text.seconds(each.steady),
            survives[each.cache_survives],
        )
        for each in found
    )
    caption = (
        "Median of the first call in new processes, least to largest in brackets: with empty databases and "
        "caches, with those that such a process left, and of the calls that follow. Warm is faster where its "
        "every first call was."
    )
    if results.simulated:
        caption += " Times of the simulating CPU, whose library keeps nothing."
    header = ("problem", "setting", "cold first call", "warm first call", "steady", "warm is faster")
    return StartUps(caption, Table(header, rows), _plots(found))


def _plots(found: Sequence[StartUp]) -> tuple[tuple[str, Markup], ...]:
    """Cold beside warm under each setting; bars of nothing are none."""
    by_problem: dict[tuple[str, str], list[plots.Bar]] = defaultdict(list)
    for each in found:
        for kind, series, calls in (("cold", "fwd", each.cold), ("warm", "fwd_bwd", each.warm)):
            median = text.numeric(calls.median)
            if median and median > 0:
                bar = plots.Bar(f"{each.setting} {kind}", series, median, text.seconds(median))
                by_problem[each.problem, each.device].append(bar)
    drawn = list(by_problem.items())[:_MOST_PLOTS]
    return tuple(
        (problem, plots.bars(bars[:_MOST_BARS], f"start-up-{number}"))
        for number, ((problem, _), bars) in enumerate(drawn)
    )


def _first_calls(calls: FirstCalls) -> str:
    return f"{text.seconds(calls.median)} ({text.seconds(calls.least)} to {text.seconds(calls.largest)})"
