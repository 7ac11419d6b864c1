"""What convolution took: plots of the times, rates beside the roofline, settings against each other, and what
the first calls took, with search and compilation, cold and warm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from markupsafe import Markup

from rocmprobe.judge.assessment import assess, broken, by_given_problem
from rocmprobe.judge.findings.start_up import FirstCalls, StartUp, start_ups
from rocmprobe.judge.noise import Seconds, drift, ratio, seconds
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import NATIVE, BadInput, Outcome, Results
from rocmprobe.model.roofline import Roof, Work, roof, work
from rocmprobe.model.telemetry import CONDITIONS
from rocmprobe.report import text
from rocmprobe.report.page import plots
from rocmprobe.report.page.layout import Table

_PASSES = {"fwd": "fwd", "bwd_data": "bwd-data", "bwd_weights": "bwd-weights", "fwd_bwd": "fwd + bwd"}
#: Of which there are bars; the others are in the tables.
_DRAWN = ("fwd", "fwd_bwd")
_MAX_PLOTS = 12
_NAIVE = "naive im2col"
_ITSELF = "itself"


@dataclass(frozen=True)
class Figures:
    """One problem: what each setting took and how near that is to the roofline, and each against others."""

    label: str
    rates: Table
    compared: Table


@dataclass(frozen=True)
class Throughput:
    caption: str
    plots: tuple[tuple[str, str], ...]
    left_out: int
    figures: tuple[Figures, ...]


@dataclass(frozen=True)
class _Timed:
    """One time of one problem: under which setting, or by what else; beside what the device did just then."""

    name: str
    key: str
    median: float
    spread: Optional[Seconds]
    outcome: Outcome


def throughput(results: Results) -> Optional[Throughput]:
    """Times of each problem under each setting, with their rates and ratios; None where nothing was timed."""
    groups = _by_problem(results)
    if not groups:
        return None
    by_default = all(any(outcome.setting == "default" for outcome in group) for group in groups.values())
    against = "setting “default”" if by_default else "the fastest setting, where “default” did not run"
    several = len({device for device, _ in groups}) > 1
    of_cpu = frozenset(setting.name for setting in results.settings if setting.verdict == "cpu")
    asked = {(device, outcome.dtype) for (device, _), outcomes in groups.items() for outcome in outcomes}
    native = {pair: _working_natively(results, *pair) for pair in asked}
    drawn, figures = [], []
    for (device, name), outcomes in groups.items():
        label = f"{name} ({device})" if several else name
        timed = [each for outcome in outcomes for each in _timed(outcome, "", outcome.setting)]
        of_dtypes = [native[device, outcome.dtype] for outcome in outcomes]
        rivals = _rivals(timed, outcomes, of_cpu, frozenset.intersection(*of_dtypes))
        bars = _bars(timed, rivals)
        if bars:
            drawn.append((label, bars))
        figures.append(Figures(label, _rates(timed, rivals), _compared(timed, rivals)))
    note = "; speeds of the simulating CPU" if results.simulated else ""
    return Throughput(
        caption=f"Median time, shorter is faster; factors are relative to {against}{note}."
        + _conditions(outcome for outcomes in groups.values() for outcome in outcomes),
        plots=tuple(
            (label, plots.bars(bars, f"plot-{i}")) for i, (label, bars) in enumerate(drawn[:_MAX_PLOTS])
        ),
        left_out=max(0, len(drawn) - _MAX_PLOTS),
        figures=tuple(figures),
    )


def _by_problem(results: Results) -> dict[tuple[str, str], list[Outcome]]:
    """The outcomes with times, by device and problem; a setting that changes the memory format is beside
    those that it is compared with."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for problem, outcome in by_given_problem(results, results.outcomes):
        if outcome.check == "throughput" and _timed(outcome, "", ""):
            groups[outcome.device, problem].append(outcome)
    return groups


def _timed(outcome: Outcome, prefix: str, name: str) -> list[_Timed]:
    found = []
    for key in _PASSES:
        median = text.numeric(outcome.timings.get(prefix + key))
        if median is not None and median > 0:
            spread = seconds(outcome.timings, prefix + key)
            found.append(_Timed(name, key, median, spread, outcome))
    return found


@dataclass(frozen=True)
class _Rivals:
    """What the times of one problem are held against, by column and key of the time. ``baseline`` is the
    default, or the shortest where that was not timed; ``of_cpu`` are the settings that leave the device."""

    columns: Mapping[str, Mapping[str, _Timed]]
    baseline: Mapping[str, _Timed]
    of_cpu: frozenset[str]

    def ratio(self, each: _Timed, rival: Optional[_Timed]) -> str:
        """How many times the rival's time, "same" or "too noisy"; empty where that was not measured."""
        if rival is None or each.spread is None or rival.spread is None:
            return ""
        if rival is each:
            return _ITSELF
        # Yardsticks of another device say nothing of this one's clocks.
        alike = (each.name in self.of_cpu) == (rival.name in self.of_cpu)
        moved = drift(each.outcome.timings, rival.outcome.timings) if alike else 1.0
        found = ratio(each.spread, rival.spread, moved)
        return f"{text.number(found.value)}×" if found.verdict in ("shorter", "longer") else found.verdict  # noqa: RUF001


def _rivals(
    timed: Sequence[_Timed], outcomes: Sequence[Outcome], of_cpu: frozenset[str], working: frozenset[str]
) -> _Rivals:
    """``working`` are the settings that go through the vendor library and hold."""
    naive = [each for outcome in outcomes for each in _timed(outcome, "naive_", _NAIVE)]
    on_device = [each for each in timed if each.name not in of_cpu] or timed
    columns = {
        "default": _shortest(each for each in timed if each.name == "default"),
        "best native": _shortest(each for each in timed if each.name in working),
        "library off": _shortest(each for each in timed if each.name == "vendor-off"),
        _NAIVE: _shortest(naive),
        "CPU": _shortest(each for each in timed if each.name in of_cpu),
    }
    return _Rivals(columns, {**_shortest(on_device), **columns["default"]}, of_cpu)


def _working_natively(results: Results, device: str, dtype: str) -> frozenset[str]:
    """The settings that go through the vendor library, and under which no convolution of ``dtype`` failed on
    ``device``."""
    here = replace(results, outcomes=tuple(each for each in results.outcomes if each.device == device))
    purpose = "inference" if results.options.get("purpose") == "inference" else "training"
    return frozenset(
        setting.name
        for setting in results.settings
        if setting.verdict in NATIVE and not broken(assess(here, setting, dtype, purpose))
    )


def _shortest(timed: Iterable[_Timed]) -> dict[str, _Timed]:
    """The shortest time for each key."""
    found: dict[str, _Timed] = {}
    for each in sorted(timed, key=lambda each: each.median):
        found.setdefault(each.key, each)
    return found


def _bars(timed: Sequence[_Timed], rivals: _Rivals) -> list[plots.Bar]:
    return [
        plots.Bar(each.name, key, each.median, _note(each, rivals))
        for key in _DRAWN
        for each in timed
        if each.key == key
    ]


def _note(each: _Timed, rivals: _Rivals) -> str:
    ratio = rivals.ratio(each, rivals.baseline.get(each.key))
    return " · ".join(part for part in (text.seconds(each.median), ratio) if part not in ("", _ITSELF))


def _compared(timed: Sequence[_Timed], rivals: _Rivals) -> Table:
    """Each time over that of the rivals that there are."""
    names = [name for name, column in rivals.columns.items() if column]
    rows = []
    for each in timed:
        ratios = (rivals.ratio(each, rivals.columns[name].get(each.key)) for name in names)
        rows.append((each.name, _PASSES[each.key], *ratios))
    return Table(("setting", "pass", *names), tuple(rows))


def _rates(timed: Sequence[_Timed], rivals: _Rivals) -> Table:
    """Times with what they come to in a second, and how much of the roofline that is; last naive im2col and
    the yardsticks themselves."""
    naive = rivals.columns[_NAIVE]
    rows = [_rated(each) for each in [*timed, *(naive[key] for key in _PASSES if key in naive)]]
    with_roof = next((each.outcome for each in timed if roof(each.outcome.timings)), None)
    if with_roof is not None:
        rows += _yardsticks(with_roof.timings)
    header = ("setting", "pass", "median", "p10 to p90", "GFLOP/s", "GB/s", "of the roofline")
    return Table(header, tuple(rows))


def _rated(each: _Timed) -> tuple[str, ...]:
    start = (each.name, _PASSES[each.key], text.seconds(each.median), _spread(each.spread))
    try:
        todo = work(parse_problem(str(each.outcome.problem)), each.key)
    except BadInput:
        # Results from elsewhere may name a problem in a way of their own.
        return (*start, "", "", "")
    ceiling = roof(each.outcome.timings)
    share = ""
    if ceiling:
        share = f"{text.number(100 * ceiling.share(todo, each.median))} % of {_bound(ceiling, todo)}"
    rates = (text.number(amount / each.median / 1e9) for amount in (todo.flops, todo.bytes))
    return (*start, *rates, share)


def _bound(ceiling: Roof, todo: Work) -> str:
    return "GEMM" if ceiling.attainable(todo) == ceiling.flops else "copy"


def _yardsticks(timings: Mapping[str, Any]) -> list[tuple[str, ...]]:
    ceiling = roof(timings)
    assert ceiling is not None, "checked before"
    rows: list[tuple[str, ...]] = []
    for name, shown, rates in (
        ("gemm", "GEMM", (text.number(ceiling.flops / 1e9), "")),
        ("copy", "copy", ("", text.number(ceiling.bytes / 1e9))),
    ):
        spread = _spread(seconds(timings, name))
        rows.append((shown, "yardstick", text.seconds(text.numeric(timings[name])), spread, *rates, ""))
    return rows


def _spread(spread: Optional[Seconds]) -> str:
    return f"{text.seconds(spread.p10)} to {text.seconds(spread.p90)}" if spread else ""


def _conditions(outcomes: Iterable[Outcome]) -> str:
    """The range of clocks and temperatures over all measurements, as a sentence; empty without any."""
    read: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        for values in outcome.conditions.values():
            for name, value in values.items():
                if text.numeric(value) is not None:
                    read[name].append(value)
    parts = [
        f"{each.short} {min(read[each.name]):.0f} to {max(read[each.name]):.0f} {each.unit}"
        for each in CONDITIONS
        if read[each.name]
    ]
    return f" Before and after: {', '.join(parts)}." if parts else ""


_MOST_START_UP_PLOTS, _MOST_START_UP_BARS = 4, 12


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
        "Median of the first call in new processes, minimum to maximum in brackets: cold with empty "
        "databases and caches, warm with those that an earlier process left; steady is the median of the "
        "calls that follow. Warm is faster if every warm first call was faster than every cold one."
    )
    if results.simulated:
        caption += " Times are those of the simulating CPU, whose library keeps no cache."
    header = ("problem", "setting", "cold first call", "warm first call", "steady", "warm is faster")
    return StartUps(caption, Table(header, rows), _start_up_plots(found))


def _start_up_plots(found: Sequence[StartUp]) -> tuple[tuple[str, Markup], ...]:
    """Cold beside warm under each setting; bars of nothing are none."""
    by_problem: dict[tuple[str, str], list[plots.Bar]] = defaultdict(list)
    for each in found:
        for kind, series, calls in (("cold", "fwd", each.cold), ("warm", "fwd_bwd", each.warm)):
            median = text.numeric(calls.median)
            if median and median > 0:
                bar = plots.Bar(f"{each.setting} {kind}", series, median, text.seconds(median))
                by_problem[each.problem, each.device].append(bar)
    drawn = list(by_problem.items())[:_MOST_START_UP_PLOTS]
    return tuple(
        (problem, plots.bars(bars[:_MOST_START_UP_BARS], f"start-up-{number}"))
        for number, ((problem, _), bars) in enumerate(drawn)
    )


def _first_calls(calls: FirstCalls) -> str:
    return f"{text.seconds(calls.median)} ({text.seconds(calls.least)} to {text.seconds(calls.largest)})"
