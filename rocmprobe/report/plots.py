"""Bars as inline SVG: no script, no font, no colour of their own; the page's style sheet paints them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass

import pygal
from markupsafe import Markup
from pygal.style import Style

from rocmprobe.report import text

_SVG = "http://www.w3.org/2000/svg"
#: Interaction, style and provenance that the page replaces or must not carry.
_DROPPED = frozenset({"script", "style", "desc", "title"})
_WIDTH, _BAR_HEIGHT, _MARGIN, _FONT = 360, 24, 6, 12


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
        # Room at the right end for the printed values.
        range=(0, 1.75),
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
    root = ET.fromstring(chart.render())  # noqa: S314 - pygal's own output
    strip(root)
    for rectangle, bar in zip(_bar_groups(root), upward):
        rectangle.set("class", f"bar {bar.series}")
    root.set("role", "img")
    root.set("aria-label", "; ".join(f"{text.one_line(bar.name, 40)}: {bar.note}" for bar in rows))
    ET.register_namespace("", _SVG)
    return Markup(text.plain(ET.tostring(root, encoding="unicode")))  # noqa: S704 - ElementTree escaped it


def strip(node: ET.Element) -> None:
    """Take away what a plot of pygal's has of its own: scripts, style, provenance."""
    for child in list(node):
        local = str(child.tag).rpartition("}")[2]
        if local in _DROPPED or "tooltip-overlay" in child.get("class", ""):
            node.remove(child)
        else:
            strip(child)


def _bar_groups(root: ET.Element) -> list[ET.Element]:
    return [node for node in root.iter(f"{{{_SVG}}}g") if node.get("class") == "bar"]
