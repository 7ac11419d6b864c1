"""The table's page and the static pages in a real browser, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gathered import outcome, put, results, table

from rocmprobe.collection.pages import table_page

PAGES = ("index.html", "gfx1010/index.html", "gfx1010/torch-2.12.0-rocm10.1.0/index.html")
EVIL = "<img src=x onerror=\"document.title='taken'\">"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty settings on three machines, of which one hangs, and a machine of another chip."""
    folder = tmp_path_factory.mktemp("page")
    for number in range(3):
        state = "hang" if number == 2 else "pass"
        asked = [outcome(state if each == 7 else "pass", setting=f"setting-{each:02}") for each in range(40)]
        put(folder / f"node{number}" / "results.json", results(*asked))
    asked = [
        outcome("crash", "convolution", direction="fwd", dtype=dtype, cause=EVIL, setting=EVIL)
        for dtype in ("float32", "float16")
    ]
    chip = {"native_isa": "gfx1012", "name": EVIL}
    other = results(*asked, gpu=chip, facts={"kernel.release": EVIL})
    put(folder / "other" / "results.json", other)
    path = folder / "table.html"
    path.write_text(table_page(table(folder)), "utf-8")
    return path


@pytest.fixture
def opened(chromium: Any, written: Path) -> Iterator[Any]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    visit = context.new_page()
    visit.faults = []
    visit.on("console", lambda message: visit.faults.append(message.text))
    visit.on("pageerror", lambda error: visit.faults.append(str(error)))
    visit.goto(written.as_uri())
    yield visit
    assert visit.faults == []
    context.close()


def shown(visit: Any) -> list[str]:
    return visit.locator("#shown tbody tr:not(:has(.place))").all_inner_texts()


def test_the_filter_narrows_and_resets(opened: Any) -> None:
    assert len(shown(opened)) == 30
    opened.get_by_role("button", name="Show more").click()
    assert len(shown(opened)) == 41
    opened.get_by_label("State").select_option(label="hang")
    (row,) = shown(opened)
    assert "setting-07" in row
    assert "pass 2" in row
    assert "hang 1" in row
    opened.get_by_label("Dtype").select_option(label="float16")
    assert shown(opened) == []
    assert "Nothing has all of that" in opened.locator("#shown").inner_text()
    opened.get_by_role("button", name="Reset").click()
    opened.get_by_label("State").select_option(label="machines disagree")
    assert len(shown(opened)) == 1
    opened.get_by_label("State").select_option(label="anything that fails")
    assert len(shown(opened)) == 2
    assert opened.locator("output").inner_text() == "3 of 42 cells"


def test_what_is_in_results_runs_nowhere(opened: Any) -> None:
    opened.get_by_label("Check").select_option(label="convolution")
    assert EVIL in shown(opened)[0]
    assert opened.locator("img").count() == 0
    assert opened.title() != "taken"


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_nothing_is_wider_than_the_screen(opened: Any, width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 800})
    assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_without_javascript_a_summary_is_there(chromium: Any, written: Path) -> None:
    context = chromium.new_context(java_script_enabled=False, offline=True)
    visit = context.new_page()
    visit.goto(written.as_uri())
    assert not visit.locator(".filter").is_visible()
    assert visit.locator("#static").is_visible()
    assert "gfx1012" in visit.locator("#static").inner_text()
    context.close()


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1200])
def test_no_page_is_wider_than_the_screen(chromium: Any, site: Path, width: int, scheme: str) -> None:
    opened = chromium.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    for name in PAGES:
        opened.goto((site / name).as_uri())
        assert opened.evaluate("document.documentElement.scrollWidth") <= width, name
    assert ("rgb(19" in opened.evaluate("getComputedStyle(document.body).backgroundColor")) == (
        scheme == "dark"
    )
    opened.close()


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(chromium: Any, site: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    opened = chromium.new_page(color_scheme=scheme)
    for name in PAGES:
        opened.goto((site / name).as_uri())
        violations = axe.Axe().run(opened).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in violations] == [], name
    opened.close()
