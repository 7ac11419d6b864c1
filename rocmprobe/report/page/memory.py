"""Measured memory: one table for each problem, with one row for each setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from rocmprobe.model.results import Outcome, Results
from rocmprobe.report.page.bars import Chart, chart
from rocmprobe.report.tables import Table, with_device
from rocmprobe.text import readable as text

_MOST_CHARTS, _MOST_BARS = 4, 16
_HEADER = ("setting", "peak", "kept for backward")


@dataclass(frozen=True)
class Memory:
    """Memory tables with labels, one per problem, and ``charts`` for at most ``_MOST_CHARTS`` problems."""

    caption: str
    tables: tuple[tuple[str, Table], ...]
    charts: tuple[Chart, ...]


def memory(results: Results) -> Optional[Memory]:
    """Return measured and predicted memory, or None if no memory was measured."""
    mine = [each for each in results.outcomes if each.check == "memory" and each.memory]
    if not mine:
        return None
    devices = {outcome.device for outcome in mine}
    problems = dict.fromkeys((each.device, each.problem or each.id) for each in mine)
    tables, charts = [], []
    for device, problem in problems:
        found = [each for each in mine if (each.device, each.problem or each.id) == (device, problem)]
        label = with_device(problem, device, devices)
        tables.append((label, Table(_HEADER, _rows(found))))
        if bars := _bars(found):
            charts.append(chart(label, bars))
    caption = (
        "Peak memory of forward and backward, without the input, the weight and the gradient of the output. "
        "The peak includes the output and the other gradients. If a library does not report its workspace, "
        "the size of these tensors is the lower bound (“at least”)."
    )
    return Memory(caption, tuple(tables), tuple(charts[:_MOST_CHARTS]))


def _bars(outcomes: list[Outcome]) -> list[tuple[str, str, float, str]]:
    """Return (name, series, bytes, bytes as text) of each bar."""
    bars = []
    for outcome in outcomes:
        predicted = _number(outcome, "predicted_bytes") or _number(outcome, "least_bytes")
        for word, series, value in (
            ("measured", "first", _number(outcome, "peak_bytes")), ("predicted", "second", predicted),
        ):  # fmt: skip
            if value and value > 0:
                bars.append((f"{outcome.setting} {word}", series, value, text.bytes_(value)))
    return bars[:_MOST_BARS]


def _rows(outcomes: list[Outcome]) -> tuple[tuple[str, ...], ...]:
    measured = {outcome.setting: outcome for outcome in outcomes}
    return tuple((setting, *_bytes(outcome)) for setting, outcome in measured.items())


def _bytes(outcome: Outcome) -> tuple[str, str]:
    """Return the peak and the bytes kept for backward, each with its prediction."""
    peak = _beside(outcome, "peak_bytes", {"predicted": "predicted_bytes", "at least": "least_bytes"})
    kept = _beside(outcome, "saved_bytes", {"predicted": "predicted_saved_bytes"})
    return peak if outcome.state == "pass" else f"{outcome.meaning.symbol} {outcome.state}: {peak}", kept


def _beside(outcome: Outcome, name: str, predictions: Mapping[str, str]) -> str:
    measured = _number(outcome, name)
    if measured is None:
        return "unknown"
    for word, key in predictions.items():
        predicted = _number(outcome, key)
        if predicted is not None:
            return f"{text.bytes_(measured)}; {word} {text.bytes_(predicted)}"
    return text.bytes_(measured)


def _number(outcome: Outcome, name: str) -> Optional[float]:
    return text.numeric(outcome.memory.get(name))
