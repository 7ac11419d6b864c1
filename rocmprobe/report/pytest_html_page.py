"""pytest-html's part of the page: the run's own time, labels for all controls, and each row said once."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from rocmprobe.model import Results
from rocmprobe.report import text
from rocmprobe.report.identity import run_seconds

_BLOB = re.compile(r'data-jsonblob="([^"]*)"')


def tidied(page: str, results: Results) -> str:
    """``page`` is what stands in pytest-html's body."""
    # The policy blocks the handler, and a browser's console should stay clean; the report is complete.
    page = page.replace(' onclick="location.reload()"', "")
    page = re.sub(r'(<input [^>]*data-test-result="(\w+)")', r'\1 aria-label="Show \2"', page)
    outcomes, took = text.count(len(results.outcomes), "outcome"), text.seconds(run_seconds(results))
    # pytest-html times its own session, which here is the rendering.
    page = re.sub(
        r'(<p class="run-count">)[^<]*',
        lambda match: f"{match[1]}{outcomes}, run took {took}.",
        page,
        count=1,
    )
    return _BLOB.sub(lambda match: f"data-jsonblob='{_packed(match[1])}'", page, count=1)


def _packed(blob: str) -> str:
    """pytest-html's data without spaces, in single quotes, since it is full of double ones: it is a third of
    the page.

    The keys of its tests only group what belongs to one test.
    """
    data: dict[str, Any] = json.loads(html.unescape(blob))
    data["tests"] = dict(enumerate(data["tests"].values()))
    for tests in data["tests"].values():
        for test in tests:
            if not test.get("extras"):
                test.pop("extras", None)
    packed = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return packed.replace("&", "&amp;").replace("'", "&#39;")
