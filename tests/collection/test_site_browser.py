"""The pages in a browser: every width, light and dark, and what people need who cannot see them well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PAGES = ("index.html", "gfx1010/index.html", "gfx1010/torch-2.12.0-rocm10.1.0/index.html")


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(chromium: Any, site: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    opened = chromium.new_page(color_scheme=scheme)
    for name in PAGES:
        opened.goto((site / name).as_uri())
        violations = axe.Axe().run(opened).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in violations] == [], name
    opened.close()
