"""The summary of a run in every form: page, terminal, Markdown, JUnit and GitHub; and the first screen."""

from __future__ import annotations

import dataclasses
import io
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import sample
from rendering import NOTE, render, shown
from rich.console import Console
from runs import Run, cli

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.summary import TRIED_ON, summarize
from rocmprobe.model.results import VERDICTS, Results
from rocmprobe.model.results_file import read_results
from rocmprobe.report.terminal.ending import render_verdict


def test_a_partial_run_is_said_once_in_each_form(tmp_path: Path) -> None:
    options = {"folder": "reports/one"}
    results = judge(dataclasses.replace(sample.rdna1(), partial=True, options=options))
    whole = judge(dataclasses.replace(results, partial=False))
    # A partial run is no profile for `rocmprobe exec`, which can be a remedy.
    bare = [[dataclasses.replace(each, remedy="") for each in one.findings] for one in (results, whole)]
    assert bare[0] == bare[1]
    for form, text in shown(results, tmp_path).items():
        assert text.count("Partial run") == 1, form
        assert text.count("--resume reports/one") == 1, form
        assert not re.search("incomplete.*incomplete|was stopped", text, re.S), form


def test_a_quiet_run_still_says_that_it_is_partial() -> None:
    out = io.StringIO()
    results = dataclasses.replace(sample.rdna1(), partial=True)
    render_verdict(summarize(results), Console(file=out, width=200, force_terminal=False))
    assert [line.partition(":")[0] for line in out.getvalue().splitlines()] == ["Partial run", "Verdict"]


@pytest.mark.parametrize("unreached", [0, 7])
def test_every_number_of_cases_is_a_row_of_one_table_that_adds_up_to_the_plan(
    unreached: int, tmp_path: Path
) -> None:
    results = judge(dataclasses.replace(sample.rdna1(), partial=unreached > 0, not_reached=unreached))
    summary = summarize(results)
    table = {count.sentence for count in summary.counts}
    assert sum(count.number for count in summary.counts) == len(results.outcomes) + unreached
    texts = {form: " ".join(text.split()) for form, text in shown(results, tmp_path).items()}
    for form in ("page", "terminal", "markdown", "job"):
        assert ", ".join(count.sentence for count in summary.counts) in texts[form], form
        # Cases have one name, so that a reader does not count the same cases twice.
        assert not re.findall(r"\d+ (?:outcomes?|tests?|questions?)\b", texts[form]), form

    page = render(results, tmp_path).html
    groups = re.findall(r'<details class="group"><summary>(\d[^<]*)</summary>', page)
    assert set(groups) == {count.sentence for count in summary.counts if count.result}
    reasons = re.findall(r"(\d+) case", texts["markdown"].partition("## Cases that did not run")[2])
    not_run = re.search(r"Cases that did not run</h2> <span class=\"muted\">([^<]*)", page)
    assert not_run
    assert set(not_run[1].split(", ")) <= table
    assert sum(map(int, reasons)) == sum(row.number for row in summary.counts if row.result == "skipped")

    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()[0]
    rows = {count.result: count.number for count in summary.counts}
    assert int(suite.attrib["tests"]) == len(suite.findall("testcase")) == sum(rows.values()) - unreached
    assert int(suite.attrib["failures"]) == rows["failed"]
    assert int(suite.attrib["skipped"]) == rows["skipped"]


@pytest.mark.parametrize("results", [sample.rdna1(), sample.healthy_cpu()], ids=["rdna1", "cpu"])
def test_headlines_have_at_most_twelve_words(results: Results) -> None:
    assert results.recommendation
    for verdict in VERDICTS:
        changed = dataclasses.replace(results.recommendation, verdict=verdict)
        headline = summarize(dataclasses.replace(results, recommendation=changed)).headline
        assert 3 <= len(headline.split()) <= 12
    early = summarize(dataclasses.replace(results, recommendation=None))
    assert early.headline.startswith("No recommendation")
    assert early.costs is None


def test_the_same_reasons_for_failures_stand_on_the_page_and_on_the_terminal(tmp_path: Path) -> None:
    texts = shown(sample.rdna1(), tmp_path)
    for failures in summarize(sample.rdna1()).failures:
        for form in ("page", "terminal"):
            assert failures.heading in texts[form], form


def test_every_form_has_the_same_blocks_to_copy(tmp_path: Path) -> None:
    results = sample.rdna1()
    texts = shown(results, tmp_path)
    for block in summarize(results).to_copy.all_blocks:
        for form in ("page", "terminal", "markdown", "job"):
            assert block.label in texts[form], form
            assert all(line in texts[form] for line in block.body.split("\n") if line), form


def test_a_note_stands_in_every_form_of_the_report(failing_run: Run, tmp_path: Path) -> None:
    assert NOTE in failing_run.ended.stdout.replace("\n", " ")
    texts = shown(failing_run.results, tmp_path / "page")
    assert [form for form, text in texts.items() if NOTE not in text] == ["annotations"]


@pytest.mark.parametrize("source", ["", "results.json"], ids=["folder", "results"])
def test_a_run_and_report_write_the_same_page(failing_run: Run, source: str, tmp_path: Path) -> None:
    done = cli("report", failing_run.folder / source, "-o", tmp_path / "again.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.html").read_bytes() == (failing_run.folder / "report.html").read_bytes()


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
