"""The page in a real browser, without a network."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest
import sample
from rendering import Rendered

pytestmark = pytest.mark.thorough

PHONE = {"viewport": {"width": 390, "height": 844}}
DESKTOP = {"viewport": {"width": 1280, "height": 900}}


OPEN = "document.querySelectorAll('details').forEach((fold) => { fold.open = true })"
#: Axe looks at every element, so rows like those before them go.
THIN = """() => document.querySelectorAll(
  ':is(.outcomes, .facts, .numbers) tr:nth-child(n+4), #results-table tr:nth-child(n+8),'
  + ' .matrix tbody:nth-of-type(n+3), .bundle .entry:nth-child(n+6)').forEach((node) => node.remove())"""
#: What axe calls serious, and worse.
GRAVE = ("serious", "critical")

Visits = Callable[..., Any]


def no_overflow(seen: Any) -> bool:
    return bool(seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_a_phone_shows_the_confidence_with_the_verdict(rdna1: Rendered, visit: Visits) -> None:
    seen = visit(rdna1, **PHONE)
    confidence = seen.page.get_by_text("Confidence: medium").first
    assert confidence.is_visible()
    assert confidence.bounding_box()["y"] < PHONE["viewport"]["height"]


def test_healthy_page_is_silent(healthy_cpu: Rendered, visit: Visits) -> None:
    seen = visit(healthy_cpu, **DESKTOP)
    assert seen.page.locator("#results-table tbody tr").count() == len(sample.healthy_cpu().outcomes)
    assert seen.page.title().startswith("Native")
    assert seen.requests == seen.noise == []


def test_without_scripts_the_answer_is_complete(rdna1: Rendered, visit: Visits) -> None:
    seen = visit(rdna1, java_script_enabled=False, **DESKTOP)
    page = seen.page
    assert "Use rocmprobe's bypass for float32." in page.inner_text("h1 >> nth=0")
    assert "Convolution through MIOpen is broken" in page.inner_text(".reason")
    assert page.locator(".matrix td a").count() == len(sample.PROBLEMS) * 3 * 4
    assert page.locator(".matrix td a").first.is_visible()
    assert not page.locator("button.copy").first.is_visible()
    assert page.locator("section:has(#h-throughput) .times").count() == 2
    assert page.locator("section:has(#h-throughput) .codes").count() == 1
    assert page.locator("section:has(#h-throughput) .times > div").count() == 2 * len(sample.PROBLEMS)
    page.get_by_role("heading", name="All outcomes").click()
    page.locator("details.group > summary").first.click()
    page.locator("details.entry > summary").first.click()
    assert sample.STATUS in page.locator(".entry-body").first.inner_text()
    assert page.locator("#results-table tbody tr:visible").count() == len(sample.rdna1().outcomes)
    for name in ("filter", "issues", "save-json", "outcome-tools"):
        assert not page.locator(f"#{name}").is_visible()


@pytest.mark.parametrize("name", ["rdna1", "healthy_cpu", "hostile", "wide"])
def test_phone_width_has_no_overflow(name: str, visit: Visits, request: pytest.FixtureRequest) -> None:
    seen = visit(request.getfixturevalue(name), **PHONE)
    assert no_overflow(seen)
    seen.page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true })")
    seen.page.click("#show-details")
    assert no_overflow(seen)


EXEC = "rocmprobe exec --simulated --profile results.json -- python train.py"


def test_copy_button_copies_the_block(rdna1: Rendered, visit: Visits) -> None:
    seen = visit(rdna1, permissions=["clipboard-read", "clipboard-write"])
    button = seen.page.locator("button.copy").first
    button.click()
    seen.page.wait_for_function("document.querySelector('button.copy').textContent === 'Copied'")
    assert seen.page.evaluate("navigator.clipboard.readText()") == EXEC


def test_save_button_gives_the_results(rdna1: Rendered, visit: Visits, tmp_path: Any) -> None:
    seen = visit(rdna1, accept_downloads=True)
    with seen.page.expect_download() as download:
        seen.page.click("#save-json")
    assert download.value.suggested_filename == "results.json"
    download.value.save_as(tmp_path / "saved.json")
    assert json.loads((tmp_path / "saved.json").read_text()) == json.loads(rdna1.results.read_text())
    assert seen.requests == []


def test_text_for_an_issue_is_copied(rdna1: Rendered, visit: Visits) -> None:
    seen = visit(rdna1, permissions=["clipboard-read", "clipboard-write"])
    seen.page.get_by_role("group", name="Copy for an issue").get_by_role("button", name="Markdown").click()
    seen.page.get_by_text("Copied: Markdown").wait_for()
    text = seen.page.evaluate("navigator.clipboard.readText()")
    assert "Convolution through MIOpen is broken" in text
    assert seen.requests == seen.noise == []


SHOWN = """() => [...document.querySelectorAll('.rp .entry:not(.log), .rp .outcomes tbody tr')]
  .filter((node) => !node.hidden).length"""
BROKEN = sum(each.state == "error" for each in sample.rdna1().outcomes)
DEPTHWISE = sum(each.state == "error" and "g96" in (each.problem or "") for each in sample.rdna1().outcomes)


@pytest.mark.parametrize(
    ("words", "amount"),
    [
        ("s:error", BROKEN),
        ("s:error !g96", BROKEN - DEPTHWISE),
        ("arch:gfx1010 S:ERR g96 bwd-data", DEPTHWISE // 3),
        ("arch:gfx942", 0),
    ],
)
def test_filter_is_kept_in_the_address(words: str, amount: int, rdna1: Rendered, visit: Visits) -> None:
    seen = visit(rdna1, **DESKTOP)
    page = seen.page
    page.get_by_role("searchbox", name="Filter").fill(words)
    assert page.evaluate(SHOWN) == amount
    assert page.locator("#filter output").inner_text() == f"{amount} of {len(sample.rdna1().outcomes)}"
    assert page.locator(".rp .matrix td a:not(.off)").count() <= amount
    rows = page.locator("#results-table tbody tr:visible")
    assert rows.count() == amount
    page.locator("#results-table th", has_text="State").click()
    assert rows.count() == amount
    again = visit(rdna1, **DESKTOP).page
    again.goto(page.url)
    assert again.locator("#filter-text").input_value() == words
    assert again.evaluate(SHOWN) == amount
    assert again.locator("#results-table tbody tr:visible").count() == amount
    again.get_by_role("searchbox").fill("")
    assert again.evaluate(SHOWN) == len(sample.rdna1().outcomes)
    assert "#" not in again.url


TESTS = "() => [...document.querySelectorAll('#results-table summary')].map((cell) => cell.textContent)"


def test_headers_of_the_table_sort_by_keyboard(rdna1: Rendered, visit: Visits) -> None:
    seen = visit(rdna1, **DESKTOP)
    page = seen.page
    header = "[...document.querySelectorAll('#results-table th')]"
    page.get_by_role("heading", name="All outcomes").click()
    sorts = f"{header}.map((th) => th.ariaSort)"
    assert page.evaluate(f"{header}.map((th) => th.textContent)") == ["Result", "State", "Test", "Duration"]
    assert page.evaluate(sorts) == ["ascending", None, None, None]
    page.get_by_role("region", name="All outcomes", exact=True).last.focus()
    for name in ("Result", "State", "Test"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == name
    ids = sorted(page.evaluate(TESTS))
    for key, order, expected in (("Enter", "ascending", ids), ("Space", "descending", ids[::-1])):
        page.keyboard.press(key)
        assert page.evaluate(TESTS) == expected
        assert page.evaluate(sorts) == [None, None, order, None]
        assert page.evaluate("document.activeElement.textContent") == "Test", "the focus stays"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    times = "[...document.querySelectorAll('#results-table [data-seconds]')].map((td) => +td.dataset.seconds)"
    assert page.evaluate(times) == sorted(page.evaluate(times))
    assert seen.noise == []


def test_boxes_choose_the_results_of_the_table(rdna1: Rendered, visit: Visits) -> None:
    page = visit(rdna1, **DESKTOP).page
    shown = page.locator("#results-table tbody tr:visible")
    page.get_by_role("heading", name="All outcomes").click()
    failed = page.get_by_role("checkbox", name=f"{BROKEN} Failed")
    failed.press("Space")
    assert shown.count() == len(sample.rdna1().outcomes) - BROKEN
    page.get_by_role("searchbox").fill("s:error")
    assert shown.count() == 0
    assert page.locator("#no-rows").inner_text() == "No results found. Check the filters."
    failed.press("Space")
    assert shown.count() == BROKEN
    page.get_by_role("button", name="Show all details").click()
    assert page.locator("#results-table details[open]").count() == len(sample.rdna1().outcomes)
    page.get_by_role("button", name="Hide all details").click()
    assert page.locator("#results-table details[open]").count() == 0


def test_an_address_that_is_no_escape_is_read_as_it_stands(rdna1: Rendered, visit: Visits) -> None:
    seen = visit(rdna1, **DESKTOP)
    seen.page.goto(f"{rdna1.page.as_uri()}?again#filter=100%")
    assert seen.page.locator("#filter-text").input_value() == "100%"
    assert seen.noise == []


def test_a_cell_outside_of_the_filter_clears_it(rdna1: Rendered, visit: Visits) -> None:
    page = visit(rdna1, **DESKTOP).page
    page.get_by_role("searchbox").fill("s:error")
    shown = page.locator(".matrix td a.bad").first
    shown.click()
    target = shown.get_attribute("href")
    page.locator(target).wait_for(state="visible")
    assert page.url.endswith(f"#filter=s%3Aerror&{target[1:]}")
    passed = page.locator("tr[id]").first.get_attribute("id")
    page.evaluate(f"location.hash = '{passed}'")
    page.locator(f"#{passed}").wait_for(state="visible")
    assert page.locator("#filter-text").input_value() == ""


def test_everything_folds_and_prints_open(rdna1: Rendered, visit: Visits) -> None:
    page = visit(rdna1, **DESKTOP).page
    passed = sum(each.state in ("pass", "slow") for each in sample.rdna1().outcomes)
    worked = page.locator("details.group", has_text=f"{passed} passed").first
    assert worked.locator("> summary").inner_text().split()[:2] == [str(passed), "passed"]
    assert not worked.locator("tbody tr").first.is_visible()
    worked.locator("> summary").press("Enter")
    worked.locator("details.bundle > summary").first.press("Enter")
    assert worked.locator("tbody tr").first.is_visible()
    folded = "document.querySelectorAll('.rp details:not([open])').length"
    before = page.evaluate(folded)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(folded) == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(folded) == before


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("rdna1", "light"), ("rdna1", "dark"), ("healthy_cpu", "light"), ("hostile", "light")],
)
def test_axe_has_no_serious_finding(
    name: str, scheme: str, visit: Visits, request: pytest.FixtureRequest
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    page = visit(request.getfixturevalue(name), bypass_csp=True, color_scheme=scheme, **DESKTOP).page
    body = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in body[4:-1].split(",")) < 3 * 60) == (scheme == "dark")
    page.evaluate(OPEN)
    page.evaluate(THIN)
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in GRAVE] == []


def test_cell_opens_its_evidence(rdna1: Rendered, visit: Visits) -> None:
    seen = visit(rdna1, **DESKTOP)
    cell = seen.page.locator(".matrix td a.bad").first
    cell.click()
    target = seen.page.locator(cell.get_attribute("href"))
    target.wait_for(state="visible")
    assert sample.STATUS in target.inner_text()
    assert seen.page.evaluate("document.activeElement.classList.contains('entry-body')")
