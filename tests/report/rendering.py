"""Rendering results for a test, and visiting the page without a network."""

from __future__ import annotations

import base64
import gzip
import html as stdlib_html
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocmprobe.judge.summary import summarize
from rocmprobe.model.results import Results
from rocmprobe.model.results_file import read_results, to_json
from rocmprobe.report import junit
from rocmprobe.report.page import html
from rocmprobe.report.terminal.ending import render_run
from rocmprobe.report.terminal.github import job_summary, workflow_commands
from rocmprobe.report.terminal.markdown import markdown
from rocmprobe.text.console import Console

#: The note of ``failing_run``.
NOTE = "an emulated gfx1010, so no time means anything"


@dataclass(frozen=True)
class Rendered:
    results: Path
    page: Path
    junit: Path

    @property
    def html(self) -> str:
        return self.page.read_text("utf-8")


def render(data: Any, folder: Path) -> Rendered:
    folder.mkdir(exist_ok=True)
    found = Rendered(folder / "results.json", folder / "report.html", folder / "junit.xml")
    found.results.write_text(json.dumps(to_json(data) if isinstance(data, Results) else data), "utf-8")
    results = read_results(found.results)
    summary = summarize(results)
    found.page.write_text(html.page(summary), "utf-8")
    found.junit.write_text(junit.document(summary), "utf-8")
    return found


def shown(results: Results, folder: Path) -> dict[str, str]:
    """Return the text of each form of the report: what a reader sees, without markup."""
    summary, console = summarize(results), Console(width=2000)
    with console.capture() as captured:
        render_run(summary, {}, console)
    page = render(results, folder).html
    page = stdlib_html.unescape(re.sub(r"<[^>]*>", "", page[page.index("<body>") : page.index("<script")]))
    forms = {
        "page": page, "terminal": captured.get(), "markdown": markdown(summary), "job": job_summary(summary),
        "annotations": "\n".join(workflow_commands(summary)),
    }  # fmt: skip
    return {form: text.replace("`", "") for form, text in forms.items()}


class Visit:
    """One page in one browser context; everything it asks of the network, or says, is kept."""

    def __init__(self, browser: Any, page: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.noise: list[str] = []
        self.page.route("**/*", self._answer)
        self.page.on("dialog", self._dialog)
        self.page.on("pageerror", lambda error: self.noise.append(str(error)))
        self.page.on("console", lambda message: self.noise.append(message.text))
        self._own = page.as_uri()
        self.page.goto(self._own)

    def _answer(self, route: Any) -> None:
        if route.request.url.split("?")[0] == self._own:
            route.continue_()
        else:
            self.requests.append(route.request.url)
            route.abort()

    def _dialog(self, dialog: Any) -> None:
        self.noise.append(f"dialog {dialog.message}")
        dialog.dismiss()


@dataclass(frozen=True)
class Row:
    """A row of the table of all outcomes."""

    result: str
    state: str
    name: str
    reason: str


def rows(page: str) -> list[Row]:
    """Return the rows of the table of all outcomes."""
    table = page[page.index('id="results-table"') :]
    cells = re.findall(
        r"<tr><td[^>]*>([^<]*)</td><td>([^<]*)</td><td><details><summary>([^<]*)</summary>([^<]*)<a", table
    )
    return [Row(*(stdlib_html.unescape(cell).strip() for cell in row)) for row in cells]


def unpacked(page: str, name: str) -> Any:
    packed = re.search(rf'<script type="application/gzip" id="{name}">([A-Za-z0-9+/=]*)</script>', page)
    assert packed
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))
