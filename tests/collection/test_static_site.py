"""The pages and the JSON that are made from bundles."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
from bundles import Records, submitted, variant
from gathered import Elements
from runs import cli
from sample import HOSTILE

from rocmprobe.text.reading import BadInput

NEW = {"torch.version": "2.12.0+rocm10.1.0"}
NAVI10 = {"native_isa": "gfx1010", "effective_isa": "gfx1010"}
NAVI31 = {"native_isa": "gfx1100", "effective_isa": "gfx1100"}
STACK = "torch-2.12.0-rocm10.1.0"


def data(site: Path, name: str) -> Any:
    return json.loads((site / f"api/v1/{name}.json").read_text("utf-8"))


def cell(site: Path, chip: str, stack: str, setting: str) -> Any:
    (found,) = data(site, chip)["stacks"][stack]["settings"][setting]["cells"]
    return found


@pytest.mark.thorough
def test_one_address_for_each_chip_and_stack(site: Path) -> None:
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("index.html"))
    assert pages == [
        "gfx1010/index.html", f"gfx1010/{STACK}/index.html", "gfx1010/torch-2.4.0-rocm6.1/index.html",
        "gfx1012/index.html", f"gfx1012/{STACK}-as-gfx1030/index.html",
        "gfx1012/torch-2.4.0-rocm6.1-as-gfx1030/index.html",
        "gfx1100/index.html", f"gfx1100/{STACK}/index.html", "index.html",
    ]  # fmt: skip


@pytest.mark.thorough
def test_every_bundle_behind_the_pages_passes_the_check(bundles: Path) -> None:
    done = cli("submit", "--check", bundles)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\n30 taken, 0 refused\n")


@pytest.mark.thorough
def test_every_link_leads_to_a_file_and_no_page_has_a_script(site: Path) -> None:
    for page in site.rglob("*.html"):
        elements = Elements(page.read_text("utf-8"))
        assert "script" not in elements.names
        for link in elements.links:
            if not link.startswith("https://"):
                assert (page.parent / unquote(link)).is_file(), link
        assert any("creativecommons.org/licenses/by/4.0" in link for link in elements.links)


@pytest.mark.thorough
def test_the_raw_file_beside_a_cell_has_its_hash(site: Path) -> None:
    stack = data(site, "gfx1010")["stacks"][STACK]
    assert len(stack["raw"]) == 8
    page = (site / f"gfx1010/{STACK}/index.html").read_text("utf-8")
    for raw in stack["raw"]:
        content = (site / "api/v1" / raw["url"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == raw["sha256"]
        assert raw["sha256"] in page
        assert raw["date"][:10] in page


@pytest.mark.thorough
def test_the_json_keeps_to_its_schema(site: Path) -> None:
    schema = data(site, "schema")
    jsonschema.Draft202012Validator.check_schema(schema)
    for name in ("index", "gfx1010", "gfx1012", "gfx1100"):
        jsonschema.validate(data(site, name), schema)
    assert data(site, "index")["licence"] == "CC-BY-4.0"


@pytest.mark.thorough
def test_disagreement_is_shown_and_not_averaged(site: Path) -> None:
    found = cell(site, "gfx1010", STACK, "default")
    assert (found["state"], found["works"], found["differs"]) == (None, None, True)
    assert found["states"] == {
        "error": {"submissions": 6, "machines": 6}, "pass": {"submissions": 2, "machines": 2}
    }  # fmt: skip
    page = (site / f"gfx1010/{STACK}/index.html").read_text("utf-8")
    assert "submissions disagree" in page
    assert "1 differ" in page
    agreed = cell(site, "gfx1010", "torch-2.4.0-rocm6.1", "default")
    assert (agreed["state"], agreed["works"], agreed["submissions"]) == ("error", False, 8)


@pytest.mark.thorough
def test_machines_are_counted_by_label_else_by_what_they_are(site: Path) -> None:
    labelled = data(site, "gfx1012")["stacks"]["torch-2.4.0-rocm6.1-as-gfx1030"]
    assert (labelled["submissions"], labelled["machines"]) == (3, 1)
    assert (labelled["first"][:10] < labelled["last"][:10]) is True
    same = data(site, "gfx1012")["stacks"][f"{STACK}-as-gfx1030"]
    assert (same["submissions"], same["machines"]) == (3, 1)
    assert data(site, "gfx1100")["machines"] == 8


@pytest.mark.thorough
def test_a_program_reads_that_miopen_has_to_be_off(site: Path) -> None:
    stack = data(site, "gfx1010")["stacks"]["torch-2.4.0-rocm6.1"]
    found = stack["recommended"]
    assert (found["agreed"], found["vendor_library"]) == (True, False)
    assert found["verdict"] == "vendor-off"
    assert "cudnn.enabled = False" in found["code"]
    assert data(site, "gfx1100")["stacks"][STACK]["recommended"]["vendor_library"] is True
    assert data(site, "gfx1010")["stacks"][STACK]["recommended"]["vendor_library"] is None


@pytest.mark.thorough
def test_the_same_bundles_give_the_same_site(bundles: Path, site: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    cli("table", bundles, "--site", again, "--repository", "https://example.org/r/")
    names = sorted(path.relative_to(site) for path in site.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file())
    assert [name for name in names if (site / name).read_bytes() != (again / name).read_bytes()] == []


def test_a_site_is_replaced_and_nothing_else_is(rows: Records, tmp_path: Path) -> None:
    one = submitted(tmp_path / "one", variant(rows, NAVI10, NEW), tmp_path / "bundles")
    two = submitted(tmp_path / "two", variant(rows, NAVI31, NEW), tmp_path / "bundles")
    folder = tmp_path / "site"
    assert cli("table", one, "--site", folder).returncode == 0
    assert cli("table", two, "--site", folder, "--raw", "https://example.org/raw").returncode == 0
    assert not (folder / "gfx1010").exists()
    assert not (folder / "raw").exists()
    assert data(folder, "gfx1100")["stacks"][STACK]["raw"][0]["url"].startswith("https://example.org/raw/")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("")
    for options in (("--site", tmp_path / "mine"), ("--site", folder, "--repository", "javascript:alert(1)")):
        done = cli("table", two, *options)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert (tmp_path / "mine/file").exists()
    assert [path.name for path in tmp_path.iterdir() if ".tmp" in path.name] == []


def test_a_refused_bundle_is_not_on_the_pages(rows: Records, tmp_path: Path) -> None:
    one = submitted(tmp_path / "one", variant(rows, NAVI10, NEW), tmp_path / "bundles")
    (tmp_path / "bundles/gfx1010" / f"{'0' * 64}.zip").write_bytes(one.read_bytes())
    done = cli("table", tmp_path / "bundles", "--site", tmp_path / "site")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "not the SHA-256 of its content" in done.stderr
    assert data(tmp_path / "site", "gfx1010")["submissions"] == 1


def test_a_run_with_facts_of_a_wrong_type_makes_no_bundle(rows: Records, tmp_path: Path) -> None:
    for gpu, facts in ((NAVI10, {"os.name": 7}), ({**NAVI10, "cus": "forty"}, {})):
        with pytest.raises(BadInput, match=r"fact os\.name|cus"):
            submitted(tmp_path / "run", variant(rows, gpu, facts), tmp_path / "bundles")


def test_foreign_text_stays_text(rows: Records, tmp_path: Path) -> None:
    facts = {"os.name": HOSTILE, "torch.version": f"2.4.0+{HOSTILE}/../../x", "kernel.release": HOSTILE}
    gpu = {**NAVI10, "name": HOSTILE, "revision": HOSTILE}
    bundle = submitted(tmp_path / "run", variant(rows, gpu, facts), tmp_path / "bundles")
    done = cli("table", bundle, "--site", tmp_path / "site")
    assert (done.returncode, done.stderr) == (0, "")
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) == 3
    for page in pages:
        assert re.fullmatch(r"[a-z0-9.-]*", page.parent.name)
        elements = Elements(page.read_text("utf-8"))
        assert not elements.names & {"script", "img"}
        assert not [link for link in elements.links if link.startswith("javascript")]
    jsonschema.validate(data(tmp_path / "site", "gfx1010"), data(tmp_path / "site", "schema"))
