"""Plots of bars, points and lines as inline SVG, coloured by the page's style sheet."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log2, log10
from typing import Any, Optional

import pygal
from markupsafe import Markup
from pygal.graph.graph import Graph
from pygal.style import Style

from rocmprobe.report import text

_SVG = "http://www.w3.org/2000/svg"
#: SVG elements that are removed, because the page forbids them or has replacements.
_DROPPED = frozenset({"script", "style", "desc", "title"})
_WIDTH, _BAR_HEIGHT, _SCATTER_HEIGHT, _MARGIN, _FONT = 360, 24, 230, 6, 12
_SHORT = 16
_LINES_WIDTH, _LINES_HEIGHT, _LINES_MARGIN = 400, 170, 8
#: Width of the space for names to the right of the lines, and height of a name.
_NAMES, _LEADING = 70, 13
#: For plots with an amount, e.g. the batch size, on the x axis: height of the plot, width of the space for
#: names, and largest number of labels on the axis.
_CURVES_HEIGHT, _CURVE_NAMES, _MOST_AMOUNTS = 220, 130, 6
#: Possible distances in seconds between two marks of the time axis.
_MARKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
_DIGITS = re.compile(r"(\.\d)\d+")

Place = tuple[float, float]
#: Options of every chart: no script, no fixed size and no legend.
_INLINE: Mapping[str, Any] = {
    "js": [], "disable_xml_declaration": True, "explicit_size": False, "show_legend": False,
}  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """A bar: name, CSS class (``series``), length, and the text at the end."""

    name: str
    series: str
    value: float
    note: str


def bars(rows: Sequence[Bar], name: str) -> Markup:
    """Draw a horizontal bar for each row, with name and value."""
    chart = pygal.HorizontalBar(
        **_INLINE,
        print_values=True,
        print_values_position="top",
        show_x_labels=False,
        width=_WIDTH,
        height=_BAR_HEIGHT * len(rows) + 2 * _MARGIN,
        margin=_MARGIN,
        spacing=4,
        # Make the range larger than the longest bar, to leave room for the printed values.
        range=(0, 1.75 if max(len(bar.note) for bar in rows) < _SHORT else 2.2),
        style=Style(label_font_size=_FONT, value_font_size=_FONT, font_family="sans-serif"),
    )
    chart.uuid = name
    longest = max(bar.value for bar in rows)
    # pygal draws the first label at the bottom.
    upward = list(reversed(rows))
    chart.x_labels = [text.one_line(bar.name, 24) for bar in upward]
    chart.add(
        "", [{"value": bar.value / longest, "formatter": lambda _, note=bar.note: note} for bar in upward]
    )
    root = _drawn(chart)
    for rectangle, bar in zip(_bar_groups(root), upward):
        rectangle.set("class", f"bar {bar.series}")
    return _inline(root, "; ".join(f"{text.one_line(bar.name, 40)}: {bar.note}" for bar in rows))


def _drawn(chart: Graph) -> ET.Element:
    root = ET.fromstring(chart.render())  # noqa: S314 - pygal's own output
    _strip(root)
    return root


def _inline(root: ET.Element, label: str) -> Markup:
    root.set("role", "img")
    root.set("aria-label", label)
    ET.register_namespace("", _SVG)
    return Markup(text.plain(ET.tostring(root, encoding="unicode")))  # noqa: S704 - ElementTree escaped it


def _strip(node: ET.Element) -> None:
    for child in list(node):
        local = str(child.tag).rpartition("}")[2]
        if local in _DROPPED or "tooltip-overlay" in child.get("class", ""):
            node.remove(child)
        else:
            _strip(child)


def _bar_groups(root: ET.Element) -> list[ET.Element]:
    return [node for node in root.iter(f"{{{_SVG}}}g") if node.get("class") == "bar"]


def scatter(
    line: Sequence[Place],
    series: Mapping[str, Sequence[Place]],
    name: str,
    label: str,
    axes: tuple[str, str],
    formatters: tuple[Callable[[float], str], Callable[[float], str]],
) -> Markup:
    """Draw the points of each series, and ``line``, which is the upper limit of the points.

    ``label`` describes the drawing to screen readers.
    """
    chart = pygal.XY(
        **_INLINE,
        width=_WIDTH,
        height=_SCATTER_HEIGHT,
        margin=_MARGIN,
        margin_right=4 * _MARGIN,
        dots_size=4,
        x_title=axes[0],
        y_title=axes[1],
        x_value_formatter=formatters[0],
        value_formatter=formatters[1],
        style=Style(label_font_size=_FONT, title_font_size=_FONT, font_family="sans-serif"),
    )
    chart.uuid = name
    places = [*line, *(place for points in series.values() for place in points)]
    chart.x_labels, chart.y_labels = (_decades([place[axis] for place in places]) for axis in (0, 1))
    chart.add("", list(line), show_dots=False)
    for points in series.values():
        chart.add("", list(points), stroke=False)
    root = _drawn(chart)
    root.set("class", "scatter")
    return _inline(root, label)


def _decades(logarithms: Sequence[float]) -> list[float]:
    """Return the powers of ten from just below to just above the values. Input and result are logarithms."""
    return [float(power) for power in range(floor(min(logarithms)), ceil(max(logarithms)) + 1)]


@dataclass(frozen=True)
class Line:
    """A quantity over time. Each point is (seconds, value or None).

    At least two consecutive points must have values. ``series`` is a CSS class: first, second, third or
    limit.
    """

    name: str
    series: str
    points: Sequence[tuple[float, Optional[float]]]

    @property
    def known(self) -> list[float]:
        return [value for _, value in self.points if value is not None]


def lines(rows: Sequence[Line], label: str, unit: str, name: str, within: Sequence[float] = ()) -> Markup:
    """Draw ``rows`` over time.

    The y axis also includes the values ``within``.
    """
    known = [*within, *(value for row in rows for value in row.known)]
    marks = _marks(min(known), max(known))
    ends = max(1.0, *(second for row in rows for second, _ in row.points))
    chart = pygal.XY(
        **_INLINE,
        show_dots=False,
        allow_interruptions=True,
        width=_LINES_WIDTH,
        height=_LINES_HEIGHT,
        margin=_LINES_MARGIN,
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
    root = _drawn(chart)
    groups = [node for node in root.iter(f"{{{_SVG}}}g") if node.get("class", "").startswith("series")]
    _paint(groups[: len(rows)], rows)
    return _inline(root, f"{label}: " + "; ".join(_spoken(row, unit) for row in rows))


def curves(rows: Sequence[Line], label: str, unit: str, name: str) -> Markup:
    """Draw ``rows`` over a logarithmic axis of amounts, such as batch sizes.

    Each point is (amount, value), and the y axis begins at 0.
    """
    marks = _marks(0.0, max(value for row in rows for value in row.known))
    powers = sorted({log2(amount) for row in rows for amount, _ in row.points})
    step = ceil(len(powers) / _MOST_AMOUNTS)
    chart = pygal.XY(
        **_INLINE,
        dots_size=2,
        truncate_label=-1,
        width=_LINES_WIDTH,
        height=_CURVES_HEIGHT,
        margin=_LINES_MARGIN,
        margin_right=_CURVE_NAMES,
        range=(marks[0], marks[-1]),
        xrange=(0, max(1.0, *powers)),
        style=Style(label_font_size=_FONT, font_family="sans-serif"),
    )
    chart.uuid = name
    chart.y_labels = [{"label": f"{mark:g}", "value": mark} for mark in marks]
    chart.x_labels = [{"label": f"{2**power:g}", "value": power} for power in powers[::step]]
    for row in rows:
        chart.add(row.name, [(log2(amount), value) for amount, value in row.points])
    root = _drawn(chart)
    root.set("class", "scatter")
    groups = [node for node in root.iter(f"{{{_SVG}}}g") if node.get("class", "").startswith("series")]
    _paint(groups[: len(rows)], rows)
    return _inline(root, f"{label}: " + "; ".join(_spoken(row, unit) for row in rows))


def _paint(groups: Sequence[ET.Element], rows: Sequence[Line]) -> None:
    ends = []
    for group, row in zip(groups, rows):
        for path in group.iter(f"{{{_SVG}}}path"):
            path.set("class", f"line {row.series}")
            path.set("d", _DIGITS.sub(r"\1", path.get("d", "")))
            last = path.get("d", "").replace("L", " ").replace("M", " ").split()[-2:]
        ends.append((float(last[1]), float(last[0]), group, row))
    lowest = -inf
    for height, right, group, row in sorted(ends, key=lambda end: end[0]):
        lowest = max(height, lowest + _LEADING)
        place = {"x": f"{right + 8:.1f}", "y": f"{lowest + 4:.1f}", "class": "name"}
        ET.SubElement(group, f"{{{_SVG}}}text", place).text = row.name


def _spoken(row: Line, unit: str) -> str:
    if row.series == "limit":
        return row.name
    return f"{row.name} {min(row.known):.4g} to {max(row.known):.4g} {unit}".rstrip()


def _marks(least: float, most: float) -> list[float]:
    """Return three to five equally spaced round numbers that enclose both values."""
    span = max(most - least, abs(most) / 10, 1e-9)
    power = 10 ** floor(log10(span / 3))
    step = next(power * size for size in (1, 2, 2.5, 5, 10) if power * size >= span / 3.5)
    first, last = floor(least / step), ceil(most / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _times(ends: float) -> list[float]:
    step = next((mark for mark in _MARKS if ends / mark <= 4.5), ends)
    return [step * number for number in range(int(ends / step) + 1)]


def _moment(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length and seconds % (length / 2) == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:.0f} s" if seconds else "0"
