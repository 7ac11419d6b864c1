"""Lines over time as inline SVG, distinguished by dashes and by the names at their ends; the page's style
sheet paints them."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

import pygal
from markupsafe import Markup
from pygal.style import Style

from rocmprobe.report.page.plots import drawn, inline

_SVG = "http://www.w3.org/2000/svg"
_WIDTH, _HEIGHT, _MARGIN, _FONT = 400, 170, 8, 12
#: Room for the names at the right end, and what they need in height.
_NAMES, _LEADING = 70, 13
#: Seconds between two marks of the time axis.
_MARKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
_DIGITS = re.compile(r"(\.\d)\d+")


@dataclass(frozen=True)
class Line:
    """One quantity: ``points`` are seconds and a value, None for a gap; two values in a row must be there.
    ``series`` is a class for the style sheet: first, second, third or limit."""

    name: str
    series: str
    points: Sequence[tuple[float, Optional[float]]]

    @property
    def known(self) -> list[float]:
        return [value for _, value in self.points if value is not None]


def lines(rows: Sequence[Line], label: str, unit: str, name: str, within: Sequence[float] = ()) -> Markup:
    """``rows`` over time. ``label`` says for those who do not see it what the plot is of, ``unit`` in what;
    the axis holds ``within`` in any case."""
    known = [*within, *(value for row in rows for value in row.known)]
    marks = _marks(min(known), max(known))
    ends = max(1.0, *(second for row in rows for second, _ in row.points))
    chart = pygal.XY(
        js=[],
        disable_xml_declaration=True,
        explicit_size=False,
        show_dots=False,
        show_legend=False,
        allow_interruptions=True,
        width=_WIDTH,
        height=_HEIGHT,
        margin=_MARGIN,
        margin_right=_NAMES,
        range=(marks[0], marks[-1]),
        xrange=(0, ends),
        style=Style(label_font_size=_FONT, font_family="sans-serif"),
    )
    chart.uuid = name
    chart.y_labels = [{"label": f"{mark:g}", "value": mark} for mark in marks]
    chart.x_labels = [{"label": _moment(mark), "value": mark} for mark in _times(ends)]
    for row in rows:
        chart.add(row.name, [point if point[1] is not None else None for point in row.points])
    root = drawn(chart)
    groups = [node for node in root.iter(f"{{{_SVG}}}g") if node.get("class", "").startswith("series")]
    _paint(groups[: len(rows)], rows)
    return inline(root, f"{label}: " + "; ".join(_spoken(row, unit) for row in rows))


def _paint(groups: Sequence[ET.Element], rows: Sequence[Line]) -> None:
    """Classes for the style sheet, fewer digits, and the names, none over another."""
    ends = []
    for group, row in zip(groups, rows):
        for path in group.iter(f"{{{_SVG}}}path"):
            path.set("class", f"line {row.series}")
            path.set("d", _DIGITS.sub(r"\1", path.get("d", "")))
            last = path.get("d", "").replace("L", " ").replace("M", " ").split()[-2:]
        ends.append((float(last[1]), float(last[0]), group, row))
    lowest = -math.inf
    for height, right, group, row in sorted(ends, key=lambda end: end[0]):
        lowest = max(height, lowest + _LEADING)
        place = {"x": f"{right + 8:.1f}", "y": f"{lowest + 4:.1f}", "class": "name"}
        ET.SubElement(group, f"{{{_SVG}}}text", place).text = row.name


def _spoken(row: Line, unit: str) -> str:
    if row.series == "limit":
        return row.name
    return f"{row.name} {min(row.known):.4g} to {max(row.known):.4g} {unit}".rstrip()


def _marks(least: float, most: float) -> list[float]:
    """Three to five round numbers that hold both."""
    span = max(most - least, abs(most) / 10, 1e-9)
    power = 10 ** math.floor(math.log10(span / 3))
    step = next(power * size for size in (1, 2, 2.5, 5, 10) if power * size >= span / 3.5)
    first, last = math.floor(least / step), math.ceil(most / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _times(ends: float) -> list[float]:
    step = next((mark for mark in _MARKS if ends / mark <= 4.5), ends)
    return [step * number for number in range(int(ends / step) + 1)]


def _moment(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length and seconds % (length / 2) == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:.0f} s" if seconds else "0"
