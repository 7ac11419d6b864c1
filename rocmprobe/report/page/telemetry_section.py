"""Sensor readings during a run: a table of extremes, and the findings based on the readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.findings.alarms import FINDINGS
from rocmprobe.model.results import Finding, Results
from rocmprobe.model.telemetry import QUANTITIES, DeviceTelemetry, Quantity
from rocmprobe.report.symbols import SEVERITY_SYMBOLS
from rocmprobe.report.tables import Table
from rocmprobe.text import readable as text

_HEADER = ("quantity", "least", "median", "most", "limit")


@dataclass(frozen=True)
class Watched:
    """Telemetry of a device."""

    title: str
    caption: str
    alarms: tuple[tuple[str, str, str], ...]
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
    found = [_watched(device, results.findings, len(seen) > 1) for device in seen]
    note = "Synthetic data: this machine is simulated." if results.simulated else ""
    return Telemetry(tuple(found), note)


def _watched(device: DeviceTelemetry, findings: Sequence[Finding], several: bool) -> Watched:
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
        f"{caption}.", alarms, Table(_HEADER, tuple(_rows(device))),
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
