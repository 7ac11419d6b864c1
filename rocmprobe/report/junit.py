"""The JUnit file, as GitHub's and GitLab's readers take it."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence

from rocmprobe.model.results import Results
from rocmprobe.report import text
from rocmprobe.report.escape import cut
from rocmprobe.report.identity import identity, run_seconds
from rocmprobe.report.reported import Reported

#: Characters of an attribute, and of the text of one failure: readers show a part of it, and GitLab takes no
#: file above 30 MB.
_ATTRIBUTE = 1_000
_TEXT = 20_000
#: Characters of all such texts together.
_ALL_TEXTS = 10_000_000
#: The element that says that a case did not pass, by pytest's word for it, and its type. What was expected
#: to fail and works has none.
_ELEMENTS = {
    "failed": ("failure", ""),
    "error": ("error", ""),
    "skipped": ("skipped", "pytest.skip"),
    "xfailed": ("skipped", "pytest.xfail"),
}
#: Elements that hold the whole text, too: of what was skipped readers show the message.
_WITH_TEXT = ("failure", "error")


def document(cases: Sequence[Reported], results: Results) -> str:
    """The file of a run: one suite with the run's date, time and facts, in the form that pytest writes
    (junit_family xunit2), without a host name.

    Names and groups become ``name`` and ``classname`` as they are: by name a CI service knows a test again.
    Texts are cut, which is marked.
    """
    elements = Counter(_ELEMENTS[case.outcome][0] for case in cases if case.outcome in _ELEMENTS)
    root = ET.Element("testsuites", name="rocmprobe")
    suite = ET.SubElement(
        root,
        "testsuite",
        name="rocmprobe",
        errors=str(elements["error"]),
        failures=str(elements["failure"]),
        skipped=str(elements["skipped"]),
        tests=str(len(cases)),
        time=f"{_seconds(run_seconds(results)):.3f}",
    )
    if text.moment(results.started):
        suite.set("timestamp", results.started)
    suite.append(_properties(results))
    room = _ALL_TEXTS
    for case in cases:
        room -= _case(suite, case, min(_TEXT, max(room, 0) + _ATTRIBUTE))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _properties(results: Results) -> ET.Element:
    recommendation = results.recommendation
    facts = {
        "rocmprobe": results.rocmprobe,
        "simulated": results.simulated or "no",
        "verdict": recommendation.verdict if recommendation else "unknown",
        **dict(identity(results)),
    }
    properties = ET.Element("properties")
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=name, value=text.one_line(value))
    return properties


def _case(suite: ET.Element, case: Reported, limit: int) -> int:
    """Add one testcase; returns how many characters its text has, at most about ``limit``."""
    element = ET.SubElement(
        suite, "testcase", classname=case.group, name=case.name, time=f"{case.seconds:.3f}"
    )
    properties = ET.SubElement(element, "properties")
    for name, value in case.properties.items():
        ET.SubElement(properties, "property", name=name, value=value)
    if case.outcome not in _ELEMENTS:
        return 0
    tag, kind = _ELEMENTS[case.outcome]
    said = ET.SubElement(element, tag, {"type": kind} if kind else {})
    said.set("message", text.one_line(case.text, _ATTRIBUTE) if len(case.text) > _ATTRIBUTE else case.text)
    if tag not in _WITH_TEXT:
        return 0
    said.text = cut(case.text, limit)
    return len(said.text)


def _seconds(value: float) -> float:
    """No reader takes a time that is negative or no number."""
    return max(value, 0.0) if math.isfinite(value) else 0.0
