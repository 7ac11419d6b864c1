"""What was measured, as tables: throughput, bypass validation, memory, and generic ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from rocmprobe.judge.start_up import FirstCalls, start_ups
from rocmprobe.model import Outcome, Results
from rocmprobe.report import plots, text
from rocmprobe.report.states import LOOKS, VERDICT_WORDS, Look

_PASSES = {"fwd": ("forward", 1), "fwd_bwd": ("forward + backward", 3)}
_MAX_PLOTS = 12


@dataclass(frozen=True)
class Table:
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


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


@dataclass(frozen=True)
class ValidationRow:
    problem: str
    direction: str
    look: Look
    shares: tuple[Optional[float], ...]
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Validation:
    """The bypass's errors, each as a share of its limit; ``summary`` says the worst."""

    measures: tuple[str, ...]
    rows: tuple[ValidationRow, ...]
    summary: str


def table(rows: Sequence[Mapping[str, Any]], first: Sequence[str]) -> Table:
    """Rows of any shape as a table: the columns of ``first``, then others as they appear."""
    names = list(dict.fromkeys([*first, *(name for row in rows for name in row)]))
    names = [name for name in names if any(row.get(name) not in (None, "") for row in rows)]
    body = tuple(tuple(_cell(name, row.get(name, "")) for name in names) for row in rows)
    return Table(tuple(name.replace("_", " ") for name in names), body)


def _cell(name: str, value: Any) -> str:
    if name == "verdict":
        return VERDICT_WORDS.get(str(value), str(value))
    amount = text.numeric(value)
    if amount is not None and name.endswith("seconds"):
        return text.seconds(amount)
    if amount is not None and name.endswith("bytes"):
        return text.bytes_(amount)
    return text.show(value) if value not in (None, "") else ""


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


def validation(results: Results) -> Optional[Validation]:
    bypass = {setting.name for setting in results.settings if setting.bypass} | {"bypass"}
    mine = [o for o in results.outcomes if o.check == "convolution" and o.setting in bypass and o.numerics]
    if not mine:
        return None
    names = [name for o in mine for name in o.numerics if f"{name}_limit" in o.numerics]
    measures = tuple(dict.fromkeys(names))
    rows, highest = [], (0.0, "")
    for outcome in mine:
        shares = tuple(_share(outcome, name) for name in measures)
        subject = f"{outcome.problem or outcome.id}, {outcome.direction or 'fwd'}"
        highest = max([highest, *((share, subject) for share in shares if share is not None)])
        cells = tuple(_against(outcome, name) for name in measures)
        exact = text.show(outcome.numerics.get("exact")) if "exact" in outcome.numerics else ""
        rows.append(
            ValidationRow(
                outcome.problem or outcome.id,
                outcome.direction or "",
                LOOKS[outcome.state],
                shares,
                (*cells, exact),
            )
        )
    good = sum(row.look.tone in ("good", "slow") for row in rows)
    summary = f"{good} of {text.count(len(rows), 'result')} within their limits"
    if highest[1]:
        summary += f"; the largest error is {highest[0]:.0%} of its limit ({text.one_line(highest[1], 90)})"
    return Validation(measures, tuple(rows), summary + ".")


def _share(outcome: Outcome, name: str) -> Optional[float]:
    value = text.numeric(outcome.numerics.get(name))
    limit = text.numeric(outcome.numerics.get(f"{name}_limit"))
    return value / limit if value is not None and limit else None


def _against(outcome: Outcome, name: str) -> str:
    if name not in outcome.numerics:
        return ""
    return f"{text.show(outcome.numerics[name])} of {text.show(outcome.numerics.get(f'{name}_limit'))}"


def memory(results: Results) -> Optional[Table]:
    mine = [outcome for outcome in results.outcomes if outcome.check == "memory" and outcome.memory]
    if not mine:
        return None
    rows = [
        {
            "problem": outcome.problem or outcome.id,
            "setting": outcome.setting,
            "state": f"{LOOKS[outcome.state].symbol} {outcome.state}",
            **outcome.memory,
        }
        for outcome in mine
    ]
    found = table(rows, ("problem", "setting", "state"))
    return Table(tuple(name.replace(" bytes", "") for name in found.header), found.rows)
