"""The summary of a run, as the page, the terminal, Markdown, JUnit and GitHub show it."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import sample
from rendering import render, shown
from rich.console import Console

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.summary import summarize
from rocmprobe.model.results import VERDICTS, Results
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
