"""Outcomes as test cases, and a JUnit file that GitHub and GitLab accept."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rocmprobe.judge.failures import reason
from rocmprobe.judge.summary import Summary
from rocmprobe.model.results import Outcome, Results
from rocmprobe.report.anchors import anchor, took
from rocmprobe.report.escape import cut
from rocmprobe.report.identity import identity, run_seconds
from rocmprobe.text import readable as text

#: Largest number of characters of evidence per case, because programs that read JUnit load the whole file.
_TEXT = 20_000


@dataclass(frozen=True)
class Reported:
    """One outcome as a test case.

    The caller must escape the text for HTML or XML. ``name`` is unique in a run. ``seconds`` is finite and
    not negative.
    """

    name: str
    group: str
    state: str
    outcome: str
    text: str
    anchor: str
    reason: str
    seconds: float
    properties: Mapping[str, str]


def reported(results: Results) -> tuple[Reported, ...]:
    """Return the outcomes of a run as test cases, in the run's order."""
    found = []
    seen: dict[str, int] = {}
    for position, outcome in enumerate(results.outcomes):
        name = text.one_line(outcome.id, 300) or "outcome"
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            # Make names unique, because programs that read JUnit would merge cases of the same name.
            name = f"{name} #{seen[name]}"
        look = outcome.meaning
        found.append(
            Reported(
                name=name,
                group=text.one_line(f"{outcome.check}.{outcome.setting}", 100).replace("::", ":"),
                state=outcome.state,
                outcome=look.pytest,
                text=_text(outcome),
                anchor=anchor(position),
                reason=text.one_line(reason(outcome) or look.meaning),
                seconds=_seconds(took(outcome)),
                properties={
                    "state": outcome.state,
                    "setting": text.one_line(outcome.setting),
                    "device": text.one_line(outcome.device),
                    # JUnit has no result for an xpass.
                    **({"expected": text.one_line(outcome.expected.reason)} if outcome.expected else {}),
                },
            )
        )
    return tuple(found)


def _text(outcome: Outcome) -> str:
    look = outcome.meaning
    why = reason(outcome)
    if look.pytest == "passed":
        return ""
    if look.pytest == "skipped":
        return text.clipped(text.plain(f"{outcome.state}: {why or look.meaning}"), _TEXT)
    lines = [f"{outcome.state}: {why or look.meaning}", *outcome.evidence[1:]]
    known = outcome.expected
    if known:
        lines.insert(
            1, f"came to {known.state}; expected by {known.source}: {known.reason} {known.link}".rstrip()
        )
    for number, attempt in enumerate(outcome.attempts, 1):
        seconds = text.seconds(attempt.seconds)
        lines.append(f"attempt {number}: {attempt.state}, {seconds} {attempt.message}".rstrip())
    return text.clipped(text.plain("\n".join(lines)), _TEXT)


#: Largest number of characters of an attribute: readers show only a part, and GitLab accepts no file above 30
#: MB.
_ATTRIBUTE = 1_000
_ALL_TEXTS = 10_000_000
#: XML element and type for a case that did not pass, by pytest's outcome. An xpass has no element.
_ELEMENTS = {
    "failed": ("failure", ""),
    "error": ("error", ""),
    "skipped": ("skipped", "pytest.skip"),
    "xfailed": ("skipped", "pytest.xfail"),
}
#: Elements that get the full text. Programs show only the message of a skipped test.
_WITH_TEXT = ("failure", "error")


def document(summary: Summary) -> str:
    """Return the JUnit file of a run in pytest's format xunit2, without a host name."""
    results, cases = summary.results, reported(summary.results)
    elements: Counter[str] = Counter()
    for count in summary.counts:
        if count.result in _ELEMENTS:
            elements[_ELEMENTS[count.result][0]] += count.number
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
    suite.append(_properties(summary))
    room = _ALL_TEXTS
    for case in cases:
        room -= _case(suite, case, min(_TEXT, max(room, 0) + _ATTRIBUTE))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _properties(summary: Summary) -> ET.Element:
    results = summary.results
    facts = {
        "rocmprobe": results.rocmprobe,
        "simulated": results.simulated or "no",
        "verdict": summary.verdict or "unknown",
        **dict(identity(results)),
    }
    properties = ET.Element("properties")
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=name, value=text.one_line(value))
    return properties


def _case(suite: ET.Element, case: Reported, limit: int) -> int:
    """Add a test case, and return the length of its text, which is at most about ``limit``."""
    # CI services recognise a test by classname and name.
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
    """Return ``value``, or 0 if ``value`` is negative or not finite."""
    # JUnit readers reject other values.
    return max(value, 0.0) if math.isfinite(value) else 0.0
