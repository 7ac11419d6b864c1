"""What the first screen says besides the verdict: the note of who ran it, and what rocmprobe was tried on."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import sample
from rendering import render, shown
from runs import SMALL, Run, machine_file, rocmprobe, run

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.summary import TRIED_ON
from rocmprobe.model.results_file import read_results

NOTE = "an emulated gfx1010, so no time means anything"


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("noted")
    return run(folder / "out", "--simulate", machine_file(folder / "machine.toml"), "--note", NOTE, *SMALL)


def test_a_note_stands_in_every_form_of_the_report(noted: Run, tmp_path: Path) -> None:
    assert NOTE in noted.ended.stdout.replace("\n", " ")
    texts = shown(noted.results, tmp_path / "page")
    assert [form for form, text in texts.items() if NOTE not in text] == ["annotations"]


@pytest.mark.parametrize("source", ["", "results.json"], ids=["folder", "results"])
def test_a_run_and_report_write_the_same_page(noted: Run, source: str, tmp_path: Path) -> None:
    done = rocmprobe("report", noted.folder / source, "-o", tmp_path / "again.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.html").read_bytes() == (noted.folder / "report.html").read_bytes()


def test_a_report_of_an_amd_gpu_says_what_rocmprobe_was_tried_on(tmp_path: Path) -> None:
    rdna1 = sample.rdna1()
    targets = [{"device": "cuda:0", "backend": "miopen"}]
    real = replace(rdna1, simulated=None, options={**rdna1.options, "targets": targets})
    told = {form for form, text in shown(real, tmp_path / "real").items() if TRIED_ON in text}
    assert told == {"page", "markdown", "terminal", "job"}
    for name, other in (("cpu", sample.healthy_cpu()), ("simulated", replace(real, simulated="somewhere"))):
        assert not any(TRIED_ON in text for text in shown(other, tmp_path / name).values())


def unfolded_words(page: str) -> int:
    """Return the number of words that a reader sees before opening any fold."""
    page = re.sub(r"(?s)<(style|script|title)\b.*?</\1>", " ", page)
    depth, closed, shown = 0, [], []
    for part in re.split(r"(<[^>]*>)", page):
        if part.startswith("<details"):
            depth += 1
            closed += [] if " open" in part else [depth]
        elif part == "</details>":
            closed = [each for each in closed if each != depth]
            depth -= 1
        elif part.startswith("<summary"):
            depth += 1
            opened, closed = closed, [each for each in closed if each != depth - 1]
        elif part == "</summary>":
            depth -= 1
            closed = opened
        elif not part.startswith("<") and not closed:
            shown.append(part)
    return len(" ".join(shown).split())


def test_the_page_of_a_failing_card_has_few_words_unfolded(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "reports" / "examples" / "rdna1-rocm52-conv-dead" / "results.json"
    page = render(judge(read_results(example)), tmp_path).html
    assert 300 < unfolded_words(page) <= 1_500
    first = page[page.index("<h1>") : page.index('id="h-findings"')]
    marks = ["rocmprobe exec", "export HSA_OVERRIDE", "Cost:", "Not tested:", "Confidence:"]
    assert [mark for mark in marks if mark in first] == marks
