"""The page of many machines: one file, nothing from outside, whatever is in the results inert."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gathered import Elements, outcome, put, results, table

from rocmprobe.collection.pages import table_page

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)> \u202e{{ 7*7 }}"


def embedded(text: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert match
    found: dict[str, Any] = json.loads(match[1])
    return found


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path: Path) -> None:
    put(tmp_path / "node" / "results.json", results())
    text = table_page(table(tmp_path))
    policies = []
    for tag, attributes in Elements(text).tags:
        policies.append(attributes.get("content") or "")
        assert tag not in {"link", "img", "iframe", "object"}
        assert not {"src", "srcset", "style"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    assert any(policy.startswith("default-src 'none'") for policy in policies)


def test_what_is_in_results_stays_text(tmp_path: Path) -> None:
    run = results(
        outcome("crash", EVIL, setting=EVIL, cause=EVIL, solver=EVIL, dtype=EVIL, direction=EVIL),
        facts={"torch.version": EVIL, "kernel.release": EVIL, "os.name": EVIL},
        gpu={"name": EVIL, "revision": EVIL, "vbios": EVIL},
        rocmprobe=EVIL,
        recommendation={"verdict": EVIL, "configuration": {"setting": EVIL, "env": {EVIL: EVIL}}},
    )
    for number in range(4):
        put(tmp_path / f"node{number}" / "results.json", results(gpu={"name": EVIL}))
    put(tmp_path / "<b>odd" / "results.json", run)
    put(tmp_path / "<b>odd" / "second.json", {**run, "outcomes": [outcome("pass", EVIL, setting=EVIL)]})
    text = table_page(table(tmp_path))
    tags = [tag for tag, _ in Elements(text).tags]
    assert tags.count("script") == 2
    assert not {"img", "b"} & set(tags)
    assert "\u202e" not in text
    assert embedded(text)["cells"]


def test_without_a_script_everything_but_the_filter_is_there(tmp_path: Path) -> None:
    for number in range(4):
        put(
            tmp_path / f"node{number}" / "results.json",
            results(outcome("pass", "convolution", direction="fwd")),
        )
    odd = results(outcome("hang", "convolution", direction="fwd"), facts={"kernel.release": "5.4.0"})
    put(tmp_path / "odd" / "results.json", odd)
    text = re.sub(r"<script.*?</script>", "", table_page(table(tmp_path)), flags=re.DOTALL)
    for words in ("5 distinct machines", "pass 4", "hang 1", "on 4 of 5", "kernel.release", "5.4.0", "node3"):
        assert words in re.sub(r"<[^>]+>", "", text)


def test_the_page_grows_with_cells_and_not_with_results(tmp_path: Path) -> None:
    put(tmp_path / "node" / "0.json", results())
    once = table_page(table(tmp_path))
    for day in range(2, 28):
        put(tmp_path / "node" / f"{day}.json", results(day=day))
    assert len(table_page(table(tmp_path))) < len(once) + 20
