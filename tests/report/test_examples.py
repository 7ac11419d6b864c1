"""The committed examples: each results.json gives the page beside it, and holds nothing of who made it."""

from __future__ import annotations

import importlib.util
import re
from itertools import zip_longest
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from rocmprobe.cli import main
from rocmprobe.model.results_file import read_results, to_json
from rocmprobe.text.redact import census, redacted_text

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "reports" / "examples"
MEND = "where the page changed on purpose: python reports/examples/make.py --pages"
#: Bytes; whoever clones the repository gets all of them.
_LIMIT = 600_000


def _make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make = _make()
EXAMPLES = (*make.EXAMPLES, *make.RECORDED)


def own(page: str) -> str:
    """Return a page without its packed data, which another version of zlib packs otherwise."""
    return re.sub(r'(<script type="application/gzip"[^>]*>)[^<]*', r"\1", page)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_results_give_the_committed_page(name: str, tmp_path: Path) -> None:
    committed, made = FOLDER / name / "report.html", tmp_path / "report.html"
    done = CliRunner().invoke(main, ["report", str(FOLDER / name / "results.json"), "-o", str(made)])
    assert done.exit_code == 0, done.output
    assert committed.is_file(), f"{committed.relative_to(ROOT)} is missing; {MEND}"
    ours, theirs = (own(path.read_text("utf-8")).splitlines() for path in (made, committed))
    for number, (now, before) in enumerate(zip_longest(ours, theirs), 1):
        if now != before:
            pytest.fail(
                f"{committed.relative_to(ROOT)} is not what its results.json gives; {MEND}\n"
                f"line {number}: {before!s:.300}\nnow:      {now!s:.300}",
                pytrace=False,
            )


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_small_and_nobodys(name: str) -> None:
    results = read_results(FOLDER / name / "results.json")
    assert not results.partial
    assert results.options["redact"]
    assert results.redacted == census(to_json(results))
    assert results.simulated == (None if name in ("cpu", *make.RECORDED) else name)
    for path in (each for each in (FOLDER / name).iterdir() if each.is_file()):
        text = path.read_text("utf-8")
        assert len(text.encode()) < _LIMIT, path
        assert not re.search(r"/(work|tmp|root|home)/", text), path
    told = (FOLDER / name / "results.json").read_text("utf-8")
    assert redacted_text(told) == told


@pytest.mark.parametrize("name", make.RECORDED)
def test_an_emulated_card_is_called_so_on_its_page(name: str) -> None:
    assert "an emulated gfx1010" in (FOLDER / name / "report.html").read_text("utf-8")


def test_a_page_that_changed_is_noticed() -> None:
    page = (FOLDER / "cpu" / "report.html").read_text("utf-8")
    for part in ("Settings and problems", "@media print", "<h2"):
        assert part in own(page)
        assert own(page) != own(page.replace(part, ""))
