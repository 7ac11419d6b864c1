"""Hooks of pytest-html for ``pytest suites/ --html=FILE``: a title, columns and a link to the report."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rocmprobe.text.plain_text import one_line
from rocmprobe.text.redact import redacted_text

#: Fields of an outcome that become columns of the table, after the result.
_COLUMNS = ("state", "setting", "cause")
_hook = pytest.hookimpl(optionalhook=True, tryfirst=True)


class HtmlRows:
    """A pytest plugin that adds the outcomes of the run in ``folder`` to pytest-html's page."""

    def __init__(self, folder: Path) -> None:
        self._report = folder / "report.html"

    @_hook
    def pytest_html_report_title(self, report: Any) -> None:
        report.title = "rocmprobe suites"

    @_hook
    def pytest_html_results_table_header(self, cells: list[str]) -> None:
        cells[1:1] = [
            f'<th class="sortable" data-column-type="{name}">{name.capitalize()}</th>' for name in _COLUMNS
        ]

    @_hook
    def pytest_html_results_table_row(self, report: Any, cells: list[str]) -> None:
        outcome = dict(getattr(report, "user_properties", ())).get("rocmprobe", {})
        cells[1:1] = [
            f'<td class="col-{name}">{escape(one_line(outcome.get(name) or ""))}</td>' for name in _COLUMNS
        ]

    @_hook
    def pytest_html_results_summary(self, prefix: list[str], session: pytest.Session) -> None:
        page = Path(os.path.expandvars(session.config.getoption("--html"))).expanduser().resolve()
        report = os.path.relpath(self._report.resolve(), page.parent)
        # Leave the link out if redaction would change its path.
        public = redacted_text(report) == report
        name = f'<a href="{escape(quote(report))}">report.html</a>' if public else "report.html"
        prefix.append(
            f"<p>The verdict, the findings and the evidence are in {name} of this run's folder.</p>"
        )
