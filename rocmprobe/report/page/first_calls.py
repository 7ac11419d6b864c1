"""Table of first calls in new processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.findings.first_calls import FirstCalls, StartUp, start_ups
from rocmprobe.model.results import Results
from rocmprobe.report.page.bars import Chart, chart
from rocmprobe.report.tables import Table, with_device
from rocmprobe.text import readable as text

_MOST_CHARTS, _MOST_BARS = 4, 12


@dataclass(frozen=True)
class StartUps:
    """First calls as a table, and as ``charts`` for at most ``_MOST_CHARTS`` problems."""

    caption: str
    table: Table
    charts: tuple[Chart, ...]


def start_up(results: Results) -> Optional[StartUps]:
    """Return the times of first calls (cold and warm) and of steady calls under each setting."""
    found = start_ups(results.outcomes)
    if not found:
        return None
    devices = {each.device for each in found}
    survives = {True: "yes", False: "no", None: "too few starts"}
    rows = tuple(
        (
            with_device(each.problem, each.device, devices),
            each.setting,
            _first_calls(each.cold),
            _first_calls(each.warm),
            text.seconds(each.steady),
            survives[each.cache_survives],
        )
        for each in found
    )
    caption = (
        "Median of the first call in new processes, with minimum and maximum in brackets. Cold: with empty "
        "databases and caches. Warm: with the databases and caches of an earlier process. Steady: median of "
        "the later calls. Warm is faster if every warm first call was faster than every cold one."
    )
    if results.simulated:
        caption += " Times are those of the CPU that simulates the GPU. Its library has no cache."
    header = ("problem", "setting", "cold first call", "warm first call", "steady", "warm is faster")
    return StartUps(caption, Table(header, rows), _start_up_charts(found))


def _start_up_charts(found: Sequence[StartUp]) -> tuple[Chart, ...]:
    by_problem: dict[tuple[str, str], list[tuple[str, str, float, str]]] = defaultdict(list)
    for each in found:
        for kind, series, calls in (("cold", "first", each.cold), ("warm", "second", each.warm)):
            median = text.numeric(calls.median)
            if median and median > 0:
                row = (f"{each.setting} {kind}", series, median, text.seconds(median))
                by_problem[each.problem, each.device].append(row)
    shown = list(by_problem.items())[:_MOST_CHARTS]
    return tuple(chart(problem, rows[:_MOST_BARS]) for (problem, _), rows in shown)


def _first_calls(calls: FirstCalls) -> str:
    return text.spread(calls.median, calls.least, calls.largest)
