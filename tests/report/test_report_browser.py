"""The page in a real browser, without a network."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import sample
from rendering import Rendered

PHONE = {"viewport": {"width": 390, "height": 844}}
DESKTOP = {"viewport": {"width": 1280, "height": 900}}

#: The worst contrast of any text on the page, with what it was found on. Backgrounds are stacked up
#: to the first opaque one.
CONTRAST = """() => {
  const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 })
  const pen = canvas.getContext('2d', { willReadFrequently: true })
  const flat = (colors) => {
    pen.clearRect(0, 0, 1, 1)
    for (const color of colors) { pen.fillStyle = color; pen.fillRect(0, 0, 1, 1) }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3)
  }
  const light = (rgb) => {
    const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
    const [r, g, b] = rgb.map((v) => linear(v / 255))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  document.querySelectorAll('details').forEach((fold) => { fold.open = true })
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  let worst = { ratio: 21, text: '' }
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement
    const box = element.getBoundingClientRect()
    if (!walker.currentNode.data.trim() || box.width < 2 || box.height < 2) continue
    if (element.closest('script, style, noscript, template, .hidden')) continue
    const style = getComputedStyle(element)
    const behind = []
    for (let at = element; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor)
    const ink = element.closest('svg') ? style.fill : style.color
    const back = flat(behind), front = flat([...behind, ink])
    const [high, low] = [light(back), light(front)].sort((a, b) => b - a)
    const ratio = (high + 0.05) / (low + 0.05)
    if (ratio < worst.ratio) worst = { ratio, text: walker.currentNode.data.trim().slice(0, 60), ink, behind }
  }
  return worst
}"""

Visits = Callable[..., Any]


def no_overflow(seen: Any) -> bool:
    return bool(seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize("bypass_csp", [False, True], ids=["policy", "escaping-alone"])
def test_hostile_text_is_inert(hostile: Rendered, visit: Visits, bypass_csp: bool) -> None:
    seen = visit(hostile, bypass_csp=bypass_csp)
    page = seen.page
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true })")
    page.click("#show_all_details")
    assert page.locator("#results-table tbody").count() == len(sample.rdna1().outcomes)
    assert page.locator("#environment tr").count() > 5
    assert page.locator("script").count() == 3
    assert page.locator("[onerror], [onclick], [href^=javascript], img[src=x]").count() == 0
    assert "{{7*7}}" in page.inner_text("h1")
    assert seen.noise == []
    assert seen.requests == []
    assert no_overflow(seen)


def test_healthy_page_is_silent(healthy_cpu: Rendered, visit: Visits) -> None:
    seen = visit(healthy_cpu, **DESKTOP)
    assert seen.page.locator("#results-table tbody").count() == len(sample.healthy_cpu().outcomes)
    assert seen.page.title().startswith("Native")
    assert seen.requests == seen.noise == []


def test_without_scripts_the_answer_is_complete(rdna1: Rendered, visit: Visits) -> None:
    seen = visit(rdna1, java_script_enabled=False, **DESKTOP)
    page = seen.page
    assert "Convolution through MIOpen is broken" in page.inner_text("h1 >> nth=0")
    assert page.locator(".matrix td a").count() == len(sample.PROBLEMS) * 3 * 4
    assert page.locator(".matrix td a").first.is_visible()
    assert not page.locator("button.copy").first.is_visible()
    assert page.locator(".plots svg").count() == len(sample.PROBLEMS)
    page.locator("details.group > summary").first.click()
    page.locator("details.entry > summary").first.click()
    assert sample.STATUS in page.locator(".entry-body").first.inner_text()
    assert "drawn by a script" in page.locator("noscript").inner_text()


@pytest.mark.parametrize("name", ["rdna1", "healthy_cpu", "hostile", "wide"])
def test_phone_width_has_no_overflow(name: str, visit: Visits, request: pytest.FixtureRequest) -> None:
    seen = visit(request.getfixturevalue(name), **PHONE)
    assert no_overflow(seen)
    seen.page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true })")
    seen.page.click("#show_all_details")
    assert no_overflow(seen)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_meets_wcag_aa(scheme: str, rdna1: Rendered, visit: Visits) -> None:
    seen = visit(rdna1, color_scheme=scheme, **DESKTOP)
    body = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in body[4:-1].split(","))
    assert (brightness < 3 * 60) == (scheme == "dark")
    seen.page.click("#show_all_details")
    worst = seen.page.evaluate(CONTRAST)
    assert worst["ratio"] >= 4.5, worst


def test_copy_button_copies_the_block(rdna1: Rendered, visit: Visits) -> None:
    seen = visit(rdna1, permissions=["clipboard-read", "clipboard-write"])
    button = seen.page.locator("button.copy").first
    button.click()
    seen.page.wait_for_function("document.querySelector('button.copy').textContent === 'Copied'")
    assert seen.page.evaluate("navigator.clipboard.readText()") == "export HSA_OVERRIDE_GFX_VERSION=10.3.0"


def test_save_button_gives_the_results(rdna1: Rendered, visit: Visits, tmp_path: Any) -> None:
    seen = visit(rdna1, accept_downloads=True)
    with seen.page.expect_download() as download:
        seen.page.click("#save-json")
    assert download.value.suggested_filename == "results.json"
    assert '"schema_version":1' in seen.page.locator("#rocmprobe-results").text_content()
    assert seen.requests == []


def test_cell_opens_its_evidence(rdna1: Rendered, visit: Visits) -> None:
    seen = visit(rdna1, **DESKTOP)
    cell = seen.page.locator(".matrix td a.bad").first
    cell.click()
    target = seen.page.locator(cell.get_attribute("href"))
    target.wait_for(state="visible")
    assert sample.STATUS in target.inner_text()
    assert seen.page.evaluate("document.activeElement.classList.contains('entry-body')")
