"""What was timed, as plots and tables: throughput and first calls."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.start_up import FirstCalls, start_ups
from rocmprobe.model import Outcome, Results
from rocmprobe.report import plots, text
from rocmprobe.report.measures import Table

_PASSES = {"fwd": ("forward", 1), "fwd_bwd": ("forward + backward", 3)}
_MAX_PLOTS = 12


@dataclass(frozen=True)
class Throughput:
    caption: str
    plots: tuple[tuple[str, str], ...]
    left_out: int
    table: Table


@dataclass(frozen=True)
class StartUps:
    caption: str
    table: Table


def throughput(results: Results) -> Optional[Throughput]:
    """Time of each problem under each setting, relative to the default (or, failing that, the fastest)."""
    mine = [o for o in results.outcomes if o.check == "throughput" and _times(o)]
    if not mine:
        return None
    flops = {str(row["id"]): text.numeric(row.get("flops")) for row in results.problems}
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    devices = {outcome.device for outcome in mine}
    for outcome in mine:
        groups[outcome.device, outcome.problem or outcome.id].append(outcome)
    drawn, rows, by_fastest = [], [], False
    for (device, problem), outcomes in groups.items():
        label = problem if len(devices) == 1 else f"{problem} ({device})"
        bars = []
        for key, (word, factor) in _PASSES.items():
            times = {o.setting: _times(o)[key] for o in outcomes if key in _times(o)}
            if not times:
                continue
            baseline = times.get("default", min(times.values()))
            by_fastest |= "default" not in times
            for outcome in (o for o in outcomes if o.setting in times):
                took = times[outcome.setting]
                work = (flops.get(problem) or 0) * factor
                speed = text.number(work / took / 1e9) if work else "unknown"
                shown, ratio = text.seconds(took), f"{took / baseline:.2f}×"  # noqa: RUF001
                bars.append(plots.Bar(outcome.setting, key, took, f"{shown} · {ratio}"))
                rows.append((label, outcome.setting, word, shown, _spread(outcome, key), ratio, speed))
        drawn.append((label, bars))
    against = "the fastest setting, where “default” did not run" if by_fastest else "setting “default”"
    note = "; speeds of the simulating CPU" if results.simulated else ""
    shown_first = drawn[:_MAX_PLOTS]
    header = ("problem", "setting", "pass", "median", "p10 to p90", "relative", "GFLOP/s")
    return Throughput(
        caption=f"Median time, shorter is faster; the factor is against {against}{note}.",
        plots=tuple((label, plots.bars(bars, f"plot-{i}")) for i, (label, bars) in enumerate(shown_first)),
        left_out=max(0, len(drawn) - _MAX_PLOTS),
        table=Table(header, tuple(rows)),
    )


def _times(outcome: Outcome) -> dict[str, float]:
    found = {key: text.numeric(outcome.timings.get(key)) for key in _PASSES}
    return {key: took for key, took in found.items() if took is not None and took > 0}


def _spread(outcome: Outcome, key: str) -> str:
    """The 10th and 90th percentile, named for the pass or, where there is only one pair, without."""
    ends = [text.numeric(outcome.timings.get(f"{key}_{end}")) for end in ("p10", "p90")]
    if None in ends and key == "fwd":
        ends = [text.numeric(outcome.timings.get(end)) for end in ("p10", "p90")]
    return "" if None in ends else " to ".join(text.seconds(end) for end in ends)


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
    return StartUps(caption, Table(header, rows))


def _first_calls(calls: FirstCalls) -> str:
    return f"{text.seconds(calls.median)} ({text.seconds(calls.least)} to {text.seconds(calls.largest)})"
