"""The pytest plugin that replays outcomes: no test is collected and none is run.

Loaded by ``rocmprobe.report.html`` in a pytest session of its own, whose root folder holds
``DOCUMENT``. The reports go to whoever listens: pytest-html and pytest's JUnit writer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import pytest

from rocmprobe.report import DOCUMENT

_document = pytest.StashKey[dict[str, Any]]()


def _read(config: pytest.Config) -> dict[str, Any]:
    """The document, read once; on demand, because pytest-metadata asks before anyone's configure."""
    if _document not in config.stash:
        config.stash[_document] = json.loads((config.rootpath / DOCUMENT).read_text("utf-8"))
    return config.stash[_document]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> bool:
    session.items = []
    session.testscollected = len(_read(session.config)["rows"])
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    for row in _read(session.config)["rows"]:
        for report in _reports(row):
            session.config.hook.pytest_runtest_logreport(report=report)
    return True


def _reports(row: Mapping[str, Any]) -> Iterator[pytest.TestReport]:
    """Setup, call and teardown, as pytest reports every item; an error is a setup that failed."""
    outcome, text = row["outcome"], row["text"]
    skip = ("results.json", 0, text)
    extra = {"row": row}
    if outcome == "error":
        yield _report(row, "setup", "failed", text, extra)
    else:
        yield _report(row, "setup", "passed", None, extra)
        if outcome in ("xfailed", "xpassed"):
            extra["wasxfail"] = text
        result = {"xfailed": "skipped", "xpassed": "passed"}.get(outcome, outcome)
        longrepr = {"passed": None, "failed": text, "skipped": skip}[result]
        yield _report(row, "call", result, longrepr, extra)
    yield _report(row, "teardown", "passed", None, {"row": row})


def _report(row: Mapping[str, Any], when: Any, outcome: Any, longrepr: Any, extra: Any) -> pytest.TestReport:
    decisive = when == "call" or outcome == "failed"
    return pytest.TestReport(
        nodeid=row["nodeid"],
        location=("results.json", None, row["name"]),
        keywords={},
        outcome=outcome,
        longrepr=longrepr,
        when=when,
        duration=row["seconds"] if decisive else 0,
        user_properties=row["properties"].items() if when == "teardown" else (),
        **extra,
    )


@pytest.hookimpl(optionalhook=True, trylast=True)
def pytest_metadata(metadata: dict[str, Any], config: pytest.Config) -> None:
    # pytest-html puts the values in as HTML; and what stands there so far is the rendering machine.
    metadata.clear()
    facts = _read(config)["environment"]
    metadata.update({name: escape(value) for name, value in facts.items()})


def pytest_html_report_title(report: Any) -> None:
    report.title = "All outcomes"


def pytest_html_results_table_header(cells: list[str]) -> None:
    cells.insert(1, '<th class="sortable" data-column-type="state">State</th>')
    del cells[-1]


def pytest_html_results_table_row(report: Any, cells: list[str]) -> None:
    # The Test cell would hold the raw name, and the Links cell has nothing to say here.
    row = report.row
    cells[0] = f"<td class=col-result>{escape(_words(cells[0]))}</td>"
    cells[1] = f"<td class=col-testId>{escape(row['name'])}</td>"
    cells[2] = f"<td class=col-duration>{escape(_words(cells[2]))}</td>"
    cells.insert(1, f"<td class=col-state>{escape(row['state'])}</td>")
    del cells[-1]


def _words(cell: str) -> str:
    return re.sub(r"<[^>]*>", "", cell)


def pytest_html_results_table_html(report: Any, data: list[str]) -> None:
    row = report.row
    data[:] = [f"{escape(row['reason'])} <a href=#{row['anchor']}>evidence</a>"]
