"""Bars and points as inline SVG: no script, no font, no colour of their own; the style sheet paints them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor

import pygal
from markupsafe import Markup
from pygal.graph.graph import Graph
from pygal.style import Style

from rocmprobe.report import text

_SVG = "http://www.w3.org/2000/svg"
#: Interaction, style and provenance that the page replaces or must not carry.
_DROPPED = frozenset({"script", "style", "desc", "title"})
_WIDTH, _BAR_HEIGHT, _SCATTER_HEIGHT, _MARGIN, _FONT = 360, 24, 230, 6, 12
#: Characters of a note.
_SHORT = 16

Place = tuple[float, float]


@dataclass(frozen=True)
class Bar:
    """One bar: who, which series (a class for the style sheet), how long, and what is printed at its end."""

    name: str
    series: str
    value: float
    note: str


def bars(rows: Sequence[Bar], name: str) -> Markup:
    """A horizontal bar for each row, first on top, each with its name and value printed."""
    chart = pygal.HorizontalBar(
        js=[],
        disable_xml_declaration=True,
        explicit_size=False,
        print_values=True,
        print_values_position="top",
        show_legend=False,
        show_x_labels=False,
        width=_WIDTH,
        height=_BAR_HEIGHT * len(rows) + 2 * _MARGIN,
        margin=_MARGIN,
        spacing=4,
        # Room at the right end for the printed values, in lengths of the longest bar.
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
    root = drawn(chart)
    for rectangle, bar in zip(_bar_groups(root), upward):
        rectangle.set("class", f"bar {bar.series}")
    return inline(root, "; ".join(f"{text.one_line(bar.name, 40)}: {bar.note}" for bar in rows))


def drawn(chart: Graph) -> ET.Element:
    """What pygal draws, without what the page replaces or must not carry."""
    root = ET.fromstring(chart.render())  # noqa: S314 - pygal's own output
    _strip(root)
    return root


def inline(root: ET.Element, label: str) -> Markup:
    """A drawing for the page; ``label`` says it to those who do not see it."""
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
    """Points of each series, distinguished by their fill, and a line above them. ``label`` says all of it in
    words, ``axes`` names x and y, and ``formatters`` write their values."""
    chart = pygal.XY(
        js=[],
        disable_xml_declaration=True,
        explicit_size=False,
        show_legend=False,
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
    root = drawn(chart)
    root.set("class", "scatter")
    return inline(root, label)


def _decades(logarithms: Sequence[float]) -> list[float]:
    """Powers of ten around the values, as their logarithms."""
    return [float(power) for power in range(floor(min(logarithms)), ceil(max(logarithms)) + 1)]
