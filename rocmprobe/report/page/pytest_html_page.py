"""pytest-html's page of all outcomes: its template, style and script, filled in one pass.

A pytest session in which every outcome is a test would do the same, but for each failure pytest looks through
all reports again.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib import metadata, resources
from typing import Any

import jinja2

from rocmprobe.model.results import Results
from rocmprobe.report import text
from rocmprobe.report.identity import identity, run_seconds
from rocmprobe.report.junit import Reported

#: The results that pytest-html counts and filters by, in its order, as (key, words for the count).
_RESULTS = (
    ("failed", "Failed"),
    ("passed", "Passed"),
    ("skipped", "Skipped"),
    ("xfailed", "Expected failures"),
    ("xpassed", "Unexpected passes"),
    ("error", "Errors"),
    ("rerun", "Reruns"),
    ("retried", "Retried"),
)
#: As its script knows them, to sort by.
_WORDS = {
    "failed": "Failed",
    "passed": "Passed",
    "skipped": "Skipped",
    "xfailed": "XFailed",
    "xpassed": "XPassed",
    "error": "Error",
}
_COLUMNS = (("result", "Result"), ("state", "State"), ("testId", "Test"), ("duration", "Duration"))
#: pytest-html sorts by whatever has this class and this attribute; a button takes a keyboard, which a cell of
#: a table does not.
_HEADER = '<th><button type="button" class="sortable" data-column-type="{}">{}</button></th>'


def page(cases: Sequence[Reported], results: Results) -> str:
    """The page with a row for each of ``cases``, as pytest-html's own script draws them."""
    now = datetime.now()
    counts = Counter(case.outcome for case in cases)
    outcomes, took = text.count(len(results.outcomes), "outcome"), text.seconds(run_seconds(results))
    rendered = _template().render(
        title="All outcomes",
        date=now.strftime("%d-%b-%Y"),
        time=now.strftime("%H:%M:%S"),
        version=metadata.version("pytest-html"),
        styles=_asset("style.css"),
        run_count=f"{outcomes}, run took {took}.",
        running_state="finished",
        self_contained=True,
        outcomes={key: {"label": label, "value": counts[key]} for key, label in _RESULTS},
        test_data="",
        table_head=[_HEADER.format(*column) for column in _COLUMNS],
        additional_summary={"prefix": [], "summary": [], "postfix": []},
    )
    # The policy blocks the handler, and a browser's console should stay clean; the report is complete.
    rendered = rendered.replace(' onclick="location.reload()"', "")
    rendered = re.sub(r'(<input [^>]*data-test-result="(\w+)")', r'\1 aria-label="Show \2"', rendered)
    before, found, after = rendered.partition('data-jsonblob=""')
    if not found:
        raise RuntimeError("pytest-html's page has no place for its data; install pytest-html 4.1 or 4.2")
    return f"{before}data-jsonblob='{_packed(_data(cases, results))}'{after}"


def _template() -> jinja2.Template:
    # A name that this version of pytest-html uses and we do not give is an error, not an empty text.
    loader = jinja2.PackageLoader("pytest_html", "resources")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.get_template("index.jinja2")


def _asset(name: str) -> str:
    return resources.files("pytest_html").joinpath("resources", name).read_text("utf-8")


def _data(cases: Sequence[Reported], results: Results) -> dict[str, Any]:
    """What the script reads; texts in it are HTML. The tests' keys only group what belongs to one test."""
    return {
        "environment": {label: escape(text.one_line(value)) for label, value in identity(results)},
        "tests": {number: [_row(case)] for number, case in enumerate(cases)},
        "renderCollapsed": ["all"],
        "initialSort": "result",
        "title": "All outcomes",
    }


def _row(case: Reported) -> dict[str, Any]:
    cells = {
        "result": _WORDS[case.outcome],
        "state": escape(case.state),
        "testId": escape(case.name),
        "duration": _duration(case.seconds),
    }
    return {
        **cells,
        "resultsTableRow": [f"<td class=col-{name}>{value}</td>" for name, value in cells.items()],
        "log": f"{escape(case.reason)} <a href=#{case.anchor}>evidence</a>",
    }


def _duration(seconds: float) -> str:
    """As the script takes it apart again to sort by it: milliseconds, or hours, minutes and seconds."""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    hours, rest = divmod(seconds, 3600)
    return f"{math.floor(hours):02d}:{math.floor(rest / 60):02d}:{round(rest % 60):02d}"


def _packed(data: dict[str, Any]) -> str:
    """``data`` for single quotes and without spaces: it is full of double ones, and a third of the page."""
    packed = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return packed.replace("&", "&amp;").replace("'", "&#39;")
