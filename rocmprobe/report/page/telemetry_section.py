"""Sensor readings during a run: plots, a table of extremes, and the findings based on the readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from markupsafe import Markup

from rocmprobe.judge.findings.alarms import FINDINGS
from rocmprobe.model.results import Finding, Results
from rocmprobe.model.telemetry import PLOTS, QUANTITIES, WATCHED, DeviceTelemetry, Quantity
from rocmprobe.report import text
from rocmprobe.report.page.layout import Table
from rocmprobe.report.page.plots import Line, lines
from rocmprobe.report.states import SEVERITY_SYMBOLS

#: Largest difference between the values of a flat line, as a fraction of the largest value.
_FLAT = 0.02
_HEADER = ("quantity", "least", "median", "most", "limit")
_SERIES = ("first", "second", "third")


@dataclass(frozen=True)
class Watched:
    """Telemetry of a device."""

    title: str
    caption: str
    alarms: tuple[tuple[str, str, str], ...]
    plots: tuple[tuple[str, Markup], ...]
    table: Table


@dataclass(frozen=True)
class Telemetry:
    devices: tuple[Watched, ...]
    note: str = ""


def telemetry(results: Results) -> Optional[Telemetry]:
    """Return the content of the section, or None if no device was sampled."""
    seen = [device for device in results.telemetry if device.samples]
    if not seen:
        return None
    found = [_watched(device, number, results.findings, len(seen) > 1) for number, device in enumerate(seen)]
    note = "Synthetic data: this machine is simulated." if results.simulated else ""
    return Telemetry(tuple(found), note)


def _watched(device: DeviceTelemetry, number: int, findings: Sequence[Finding], several: bool) -> Watched:
    lasted = text.seconds(max((each for each in device.seconds if each is not None), default=0.0))
    caption = f"{text.count(device.samples, 'sample')} over {lasted}"
    if device.asleep:
        caption += f", {device.asleep} of them while it was asleep; it was not woken"
    suffix = f"-{device.device}" if several else ""
    own = {f"{name}{suffix}" for name in FINDINGS}
    alarms = tuple(
        (SEVERITY_SYMBOLS[each.severity], each.severity, each.title) for each in findings if each.id in own
    )
    return Watched(
        f"{device.name} ({device.device})" if device.device != "cpu" else "Processor",
        f"{caption}.", alarms, tuple(_plots(device, number)), Table(_HEADER, tuple(_rows(device))),
    )  # fmt: skip


def _rows(device: DeviceTelemetry) -> list[tuple[str, ...]]:
    found = []
    for quantity in QUANTITIES.values():
        series = device.values.get(quantity.name)
        if series is None or not quantity.words:
            continue
        limit = device.limit(quantity.name)
        extremes = (series.min, series.median, series.max)
        found.append((quantity.words, *(_shown(quantity, value) for value in extremes),
                      "" if limit is None else _shown(quantity, limit)))  # fmt: skip
    return found


def _shown(quantity: Quantity, value: Optional[float]) -> str:
    number = text.numeric(value)
    if number is None:
        return "unknown"
    if quantity.unit == "B":
        return text.bytes_(number)
    return f"{number:.4g} {quantity.unit}"


def _plots(device: DeviceTelemetry, number: int) -> list[tuple[str, Markup]]:
    timed = [
        (second, moment)
        for second, moment in zip(map(text.numeric, device.seconds), device.moments())
        if second is not None
    ]
    found: list[tuple[str, Markup]] = []
    for plot in PLOTS:
        rows: list[Line] = []
        # Show only one limit in a plot, from the first quantity that has a limit.
        limit: Optional[float] = None
        for quantity in (each for each in WATCHED if each.plot == plot and each.line):
            values = [_divided(moment.get(quantity.name), plot.divisor) for _, moment in timed]
            if any(None not in pair for pair in zip(values, values[1:])):
                points = [(second, value) for (second, _), value in zip(timed, values)]
                rows.append(Line(quantity.line, _SERIES[len(rows) % len(_SERIES)], points))
                limit = limit if limit is not None else _divided(device.limit(quantity.name), plot.divisor)
        if not rows or (limit is None and all(map(_is_flat, rows))):
            continue
        if limit is not None:
            rows.append(Line(f"limit {limit:.3g}", "limit", [(timed[0][0], limit), (timed[-1][0], limit)]))
        label, within = f"{plot.title}, {plot.unit}", (0.0, 100.0) if plot.unit == "%" else ()
        found.append((label, lines(rows, label, plot.unit, f"telemetry-{number}-{len(found)}", within)))
    return found


def _is_flat(row: Line) -> bool:
    values = [value for _, value in row.points if value is not None]
    return not values or max(values) - min(values) <= _FLAT * abs(max(values))


def _divided(value: Optional[float], divisor: float) -> Optional[float]:
    number = text.numeric(value)
    return None if number is None else number / divisor
