"""Pages rendered once, and a browser without a network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sample

from rocmprobe.model import Results, to_json
from rocmprobe.report import html


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
    html.write(found.results, found.page, found.junit)
    return found


@pytest.fixture(scope="session")
def rdna1(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return render(sample.rdna1(), tmp_path_factory.mktemp("rdna1"))


@pytest.fixture(scope="session")
def healthy_cpu(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return render(sample.healthy_cpu(), tmp_path_factory.mktemp("healthy"))


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return render(sample.hostile(sample.rdna1()), tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine")
    quiet = ("networking", "component-update", "sync")
    arguments = ["--no-sandbox", "--disable-gpu", "--no-first-run", f"--disable-background-{quiet[0]}"]
    arguments += [f"--disable-{name}" for name in quiet[1:]]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=arguments)
        yield browser
        browser.close()


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


@pytest.fixture
def visit(chromium: Any) -> Iterator[Any]:
    visits: list[Visit] = []

    def open_page(rendered: Rendered, **options: Any) -> Visit:
        visits.append(Visit(chromium, rendered.page, **options))
        return visits[-1]

    yield open_page
    for each in visits:
        each.context.close()
