"""Bars of the report page, which the template draws."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rocmprobe.text import readable as text

#: Length of the longest bar, in per cent of the width for bars.
LONGEST = 100.0


@dataclass(frozen=True)
class Bar:
    """A bar with an error bar from ``low`` to ``high``, in per cent of the width. ``note`` is its value."""

    length: float
    note: str
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class NamedBar:
    """A row of a chart. ``series`` is a CSS class: first, second or limit."""

    name: str
    series: str
    bar: Bar


#: A chart's label and its rows.
Chart = tuple[str, tuple[NamedBar, ...]]


def chart(label: str, rows: Iterable[tuple[str, str, float, str]]) -> Chart:
    """Return a chart of (name, series, value, value as text)."""
    found = list(rows)
    longest = max(value for _, _, value, _ in found)
    return label, tuple(
        NamedBar(text.one_line(name, 40), series, Bar(LONGEST * (value / longest), note))
        for name, series, value, note in found
    )
