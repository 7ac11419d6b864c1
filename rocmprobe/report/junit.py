"""The JUnit file, as GitHub's and GitLab's readers take it: what pytest wrote, with the run's facts in it."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any

from rocmprobe.model import Results
from rocmprobe.report import text, view
from rocmprobe.report.identity import run_seconds
from rocmprobe.report.inert import cut

#: Characters of an attribute, and of the text of one failure: readers show a part of it, and GitLab takes no
#: file above 30 MB.
_ATTRIBUTE = 1_000
_TEXT = 20_000
#: Characters of all such texts together.
_ALL_TEXTS = 10_000_000


def tidied(junit: str, rows: Sequence[Mapping[str, Any]], results: Results) -> str:
    """pytest's file with the date and time of the run instead of the rendering's, and without a host name.

    ``rows`` are what was reported, one for each testcase and in that order. Their names and groups become
    ``name`` and ``classname`` as they are: pytest cuts names at ``::`` and ``[``, and by name a CI service
    knows a test again. Texts are cut, which is marked.
    """
    root = ET.fromstring(junit)  # noqa: S314 - written by pytest a moment ago
    root.set("name", "rocmprobe")
    for suite in root.iter("testsuite"):
        _date(suite, results)
        suite.insert(0, _properties(results))
    room = _ALL_TEXTS
    for case, row in zip(root.iter("testcase"), rows):
        case.set("classname", row["group"])
        case.set("name", row["name"])
        case.set("time", f"{_seconds(row['seconds']):.3f}")
        room -= _shorten(case, min(_TEXT, max(room, 0) + _ATTRIBUTE))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _date(suite: ET.Element, results: Results) -> None:
    suite.attrib.pop("hostname", None)
    suite.attrib.pop("timestamp", None)
    if text.moment(results.started):
        suite.set("timestamp", results.started)
    suite.set("time", f"{_seconds(run_seconds(results)):.3f}")


def _properties(results: Results) -> ET.Element:
    recommendation = results.recommendation
    facts = {
        "rocmprobe": results.rocmprobe,
        "simulated": results.simulated or "no",
        "verdict": recommendation.verdict if recommendation else "unknown",
        **dict(view.identity(results)),
    }
    properties = ET.Element("properties")
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=name, value=text.one_line(value))
    return properties


def _seconds(value: float) -> float:
    """No reader takes a time that is negative or no number."""
    return max(value, 0.0) if math.isfinite(value) else 0.0


def _shorten(case: ET.Element, limit: int) -> int:
    """Cut the texts of one testcase; returns how many characters they have now."""
    length = 0
    for element in case.iter():
        for name, value in element.attrib.items():
            element.set(name, text.one_line(value, _ATTRIBUTE) if len(value) > _ATTRIBUTE else value)
        if element.text:
            element.text = cut(element.text, limit)
            length += len(element.text)
    return length
