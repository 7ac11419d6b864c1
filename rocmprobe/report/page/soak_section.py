"""Tables of the soak tests: the result of each soak, and the steps with differing results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from rocmprobe.judge.findings.stability import CHECK, read_soak, sentence
from rocmprobe.model.results import Outcome, Results
from rocmprobe.model.telemetry import CHIP
from rocmprobe.report import text
from rocmprobe.report.page.layout import Table, with_device
from rocmprobe.text.durations import duration

_HEADER = ("setting", "state", "steps", "time", "mismatches", "hottest", "most power", "batch", "compared")
_MISMATCHES = ("setting", "step", "after", "most in", "values", "bits", "error", "temperature", "power")
_COMPARED = {True: "bit for bit", False: "within rounding", None: ""}


@dataclass(frozen=True)
class Soaks:
    """A sentence for each soak, a table of all soaks, and a table of mismatches."""

    caption: str
    sentences: tuple[str, ...]
    table: Table
    mismatches: Table


def soaks(results: Results) -> Optional[Soaks]:
    """Return the soaks, or None if no soak began."""
    mine = [each for each in results.outcomes if each.check == CHECK and each.numerics]
    if not mine:
        return None
    caption = "One training step with fixed weights and data was repeated, and every result was compared."
    if results.simulated:
        caption += " This machine is simulated: each step counts as 5 s."
    devices = {each.device for each in mine}
    names = {each.id: with_device(each.setting, each.device, devices) for each in mine}
    return Soaks(
        caption,
        tuple(f"{names[each.id]}: {sentence(each, results)}" for each in mine),
        Table(_HEADER, tuple(_row(each, names[each.id]) for each in mine)),
        Table(_MISMATCHES, tuple(row for each in mine for row in _mismatches(each, names[each.id]))),
    )


def _row(outcome: Outcome, name: str) -> tuple[str, ...]:
    soak = read_soak(outcome)
    hottest = next((soak.peak[name] for name in CHIP if name in soak.peak), None)
    return (
        name, f"{outcome.meaning.symbol} {outcome.state}", f"{soak.steps:,}", duration(soak.seconds),
        f"{soak.mismatches:,}", _unit(hottest, "°C"), _unit(soak.peak.get("power_w"), "W"),
        text.show(outcome.numerics.get("batch", "")), _COMPARED[soak.bit_for_bit],
    )  # fmt: skip


def _mismatches(outcome: Outcome, name: str) -> Iterator[tuple[str, ...]]:
    found = outcome.numerics.get("mismatch")
    for each in found if isinstance(found, (list, tuple)) else ():
        if isinstance(each, Mapping):
            yield (
                name, text.show(each.get("step", "")), duration(text.numeric(each.get("seconds")) or 0),
                text.show(each.get("of", "")), text.show(each.get("elements", "")),
                text.show(each.get("bits", "")), text.show(each.get("error")),
                _unit(each.get("temperature_c"), "°C"), _unit(each.get("power_w"), "W"),
            )  # fmt: skip


def _unit(value: Any, unit: str) -> str:
    number = text.numeric(value)
    return "" if number is None else f"{number:.0f} {unit}"
