"""Times and rates of convolution."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from rocmprobe.judge.assessment import failed_convolutions
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.noise import Seconds, drift, ratio, seconds, yardsticks
from rocmprobe.judge.times import by_given_problem
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import NATIVE, BadInput, Outcome, Results
from rocmprobe.model.telemetry import CONDITIONS
from rocmprobe.report.codes import short_codes
from rocmprobe.report.page.bars import LONGEST, Bar
from rocmprobe.report.tables import Table, with_device
from rocmprobe.text import readable as text

_PASSES = {"fwd": "fwd", "bwd_data": "bwd-data", "bwd_weights": "bwd-weights", "fwd_bwd": "fwd + bwd"}
#: Passes with bars, and the title of their bar panel. Other passes are only in the tables.
_PANELS = {"fwd": "Forward", "fwd_bwd": "Forward and backward"}
_MOST_PROBLEMS = 12
#: Largest number of settings with bars. Further settings are only in the tables.
_MOST_BARS = 6
_TOO_NOISY = "too noisy"
_NAIVE = "naive im2col"
_ITSELF = "itself"


@dataclass(frozen=True)
class Figures:
    """Results of a problem: time and rates under each setting, and comparisons of the settings."""

    label: str
    rates: Table
    compared: Table


@dataclass(frozen=True)
class TimeBar:
    """A bar for one setting, labelled with the setting's short code."""

    code: str
    setting: str
    recommended: bool
    bar: Bar


@dataclass(frozen=True)
class Panel:
    """Bars for forward, or for forward and backward. Each problem has one bar for each setting."""

    title: str
    problems: tuple[tuple[str, tuple[TimeBar, ...]], ...]


@dataclass(frozen=True)
class Throughput:
    """Content of the section: bar panels, and tables of all ``figures``."""

    caption: str
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...]
    left_out: str
    figures: tuple[Figures, ...]


@dataclass(frozen=True)
class _Timed:
    name: str
    key: str
    median: float
    spread: Optional[Seconds]
    outcome: Outcome


def throughput(results: Results) -> Optional[Throughput]:
    """Return times, rates and ratios of each problem under each setting, or None if nothing was timed."""
    groups = _by_problem(results)
    if not groups:
        return None
    by_default = all(any(outcome.setting == "default" for outcome in group) for group in groups.values())
    against = (
        "setting “default”"
        if by_default
        else "setting “default”, or to the fastest setting if “default” did not run"
    )
    devices = {device for device, _ in groups}
    of_cpu = frozenset(setting.name for setting in results.settings if setting.verdict == "cpu")
    asked = {(device, outcome.dtype) for (device, _), outcomes in groups.items() for outcome in outcomes}
    native = {pair: _working_natively(results, *pair) for pair in asked}
    compared, figures = [], []
    for (device, name), outcomes in groups.items():
        label = with_device(name, device, devices)
        timed = [each for outcome in outcomes for each in _timed(outcome, "", outcome.setting)]
        of_dtypes = [native[device, outcome.dtype] for outcome in outcomes]
        rivals = _rivals(timed, outcomes, of_cpu, frozenset.intersection(*of_dtypes))
        compared.append((label, timed, rivals))
        figures.append(Figures(label, _rates(timed, rivals), _compared(timed, rivals)))
    drawn = [each for each in compared if any(one.key in _PANELS for one in each[1])]
    names = dict.fromkeys(each.name for _, timed, _ in drawn for each in timed)
    shown = _shown_settings(results, list(names), _MOST_BARS)
    codes = short_codes(shown)
    panels = _panels(drawn[:_MOST_PROBLEMS], codes, results.recommended)
    note = "; speeds of the CPU that simulates the GPU" if results.simulated else ""
    noisy = any(_TOO_NOISY in row for each in figures for row in each.compared.rows)
    return Throughput(
        caption=f"Median time, shorter is faster; factors are relative to {against}{note}."
        + (" Bars without a factor are too noisy to compare." if noisy else "")
        + _conditions(outcome for outcomes in groups.values() for outcome in outcomes),
        panels=panels,
        legend=tuple((code, name) for name, code in codes.items()) if panels else (),
        left_out=_left_out(len(drawn) - _MOST_PROBLEMS, len(names) - len(shown)),
        figures=tuple(figures),
    )


def _left_out(problems: int, settings: int) -> str:
    counts = [(problems, "more problem"), (settings, "more setting")]
    parts = [text.count(number, noun) for number, noun in counts if number > 0]
    return f"Only in the numbers: {' and '.join(parts)}." if parts else ""


def _by_problem(results: Results) -> dict[tuple[str, str], list[Outcome]]:
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
    """Reference times. The page shows each setting's time relative to the reference times.

    ``columns`` is keyed by column name, then by direction ("fwd") or directions ("fwd_bwd"). ``of_cpu`` are
    the settings that compute on the CPU.
    """

    columns: Mapping[str, Mapping[str, _Timed]]
    baseline: Mapping[str, _Timed]
    of_cpu: frozenset[str]

    def ratio(self, each: _Timed, rival: Optional[_Timed]) -> str:
        """Return the time ``each`` divided by the time ``rival``, or "same" or "too noisy"."""
        if rival is None or each.spread is None or rival.spread is None:
            return ""
        if rival is each:
            return _ITSELF
        # Do not compute the drift between a time on the CPU and a time on the GPU, because their clocks are
        # independent.
        alike = (each.name in self.of_cpu) == (rival.name in self.of_cpu)
        moved = drift(each.outcome.timings, rival.outcome.timings) if alike else 1.0
        found = ratio(each.spread, rival.spread, moved)
        return f"{text.number(found.value)}×" if found.verdict in ("shorter", "longer") else found.verdict  # noqa: RUF001


def _rivals(
    timed: Sequence[_Timed], outcomes: Sequence[Outcome], of_cpu: frozenset[str], working: frozenset[str]
) -> _Rivals:
    """Return the times with which ``timed`` are compared.

    ``working`` are the settings that use the vendor library and give correct results.
    """
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
    here = tuple(each for each in results.outcomes if each.device == device)
    run = Evidence(replace(results, outcomes=here))
    purpose = results.purpose
    return frozenset(
        setting.name
        for setting in results.settings
        if setting.verdict in NATIVE and not failed_convolutions(run.assess(setting, dtype, purpose))
    )


def _shortest(timed: Iterable[_Timed]) -> dict[str, _Timed]:
    found: dict[str, _Timed] = {}
    for each in sorted(timed, key=lambda each: each.median):
        found.setdefault(each.key, each)
    return found


def _panels(
    drawn: Sequence[tuple[str, Sequence[_Timed], _Rivals]], codes: Mapping[str, str], chosen: Optional[str]
) -> tuple[Panel, ...]:
    panels = []
    for key, title in _PANELS.items():
        problems = []
        for label, timed, rivals in drawn:
            mine = {each.name: each for each in timed if each.key == key and each.name in codes}
            longest = max((_high(each) for each in mine.values()), default=0.0)
            bars = tuple(
                TimeBar(code, name, name == chosen, _bar(mine[name], rivals, LONGEST / longest))
                for name, code in codes.items()
                if name in mine
            )
            if bars:
                problems.append((label, bars))
        if problems:
            panels.append(Panel(title, tuple(problems)))
    return tuple(panels)


def _bar(each: _Timed, rivals: _Rivals, scale: float) -> Bar:
    low = each.spread.p10 if each.spread else each.median
    return Bar(each.median * scale, _note(each, rivals), low * scale, _high(each) * scale)


def _high(each: _Timed) -> float:
    return max(each.median, each.spread.p90 if each.spread else 0.0)


def _note(each: _Timed, rivals: _Rivals) -> str:
    ratio = rivals.ratio(each, rivals.baseline.get(each.key))
    known = (text.seconds(each.median), ratio)
    return " · ".join(part for part in known if part not in ("", _ITSELF, _TOO_NOISY))


def _compared(timed: Sequence[_Timed], rivals: _Rivals) -> Table:
    names = [name for name, column in rivals.columns.items() if column]
    rows = []
    for each in timed:
        ratios = (rivals.ratio(each, rivals.columns[name].get(each.key)) for name in names)
        rows.append((each.name, _PASSES[each.key], *ratios))
    return Table(("setting", "pass", *names), tuple(rows))


def _rates(timed: Sequence[_Timed], rivals: _Rivals) -> Table:
    naive = rivals.columns[_NAIVE]
    rows = [_rated(each) for each in [*timed, *(naive[key] for key in _PASSES if key in naive)]]
    rows += next((found for each in timed if (found := _yardsticks(each.outcome.timings))), [])
    header = ("setting", "pass", "median", "p10 to p90", "rate")
    return Table(header, tuple(rows))


def _rated(each: _Timed) -> tuple[str, ...]:
    start = (each.name, _PASSES[each.key], text.seconds(each.median), _spread(each.spread))
    try:
        flops = parse_problem(str(each.outcome.problem)).flops * (3 if each.key == "fwd_bwd" else 1)
    except BadInput:
        # Results from another version of rocmprobe can have problems that this version cannot parse.
        return (*start, "")
    return (*start, f"{text.number(flops / each.median / 1e9)} GFLOP/s")


def _yardsticks(timings: Mapping[str, Any]) -> list[tuple[str, ...]]:
    found = yardsticks(timings)
    if found is None:
        return []
    return [
        (shown, "yardstick", text.seconds(text.numeric(timings[name])), _spread(seconds(timings, name)), rate)
        for name, shown, rate in (
            ("gemm", "GEMM", f"{text.number(found.flops / 1e9)} GFLOP/s"),
            ("copy", "copy", f"{text.number(found.bytes / 1e9)} GB/s"),
        )
    ]


def _spread(spread: Optional[Seconds]) -> str:
    return f"{text.seconds(spread.p10)} to {text.seconds(spread.p90)}" if spread else ""


def _conditions(outcomes: Iterable[Outcome]) -> str:
    read: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        for values in outcome.conditions.values():
            for name, value in values.items():
                if text.numeric(value) is not None:
                    read[name].append(value)
    parts = [f"{each.short} {_extent(read[each.name])} {each.unit}" for each in CONDITIONS if read[each.name]]
    return f" Before and after the measurements: {', '.join(parts)}." if parts else ""


def _extent(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def _shown_settings(results: Results, names: list[str], most: int) -> list[str]:
    first = ("default", results.recommended, "bypass", "vendor-off")
    wanted = dict.fromkeys(filter(None, (*first, *names)))
    return [name for name in wanted if name in names][:most]
