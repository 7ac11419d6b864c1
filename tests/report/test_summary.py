"""The summary of a run, as the page, the terminal, Markdown, JUnit and GitHub show it."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path

import pytest
import sample
from rendering import render
from rich.console import Console

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.summary import summarize
from rocmprobe.model.results import VERDICTS, Results
from rocmprobe.report.terminal.ending import render_run, render_verdict
from rocmprobe.report.terminal.github import job_summary, workflow_commands
from rocmprobe.report.terminal.markdown import markdown


def shown(results: Results, folder: Path) -> dict[str, str]:
    summary, out = summarize(results), io.StringIO()
    render_run(summary, {}, Console(file=out, width=200, force_terminal=False))
    page = render(results, folder).html
    page = page[page.index("<body>") : page.index("<script")]
    forms = {
        "page": re.sub(r"<[^>]*>", "", page), "terminal": out.getvalue(), "markdown": markdown(summary),
        "job": job_summary(summary), "annotations": "\n".join(workflow_commands(summary)),
    }  # fmt: skip
    return {form: text.replace("`", "") for form, text in forms.items()}


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
def test_counts_are_the_same_everywhere_and_add_up_to_the_plan(unreached: int, tmp_path: Path) -> None:
    results = dataclasses.replace(sample.rdna1(), partial=unreached > 0, not_reached=unreached)
    counts = summarize(results).counts
    assert sum(count.number for count in counts) == len(results.outcomes) + unreached
    words = "61 passed (3 slow), 31 failed, 11 not run" + (", 7 not reached" if unreached else "")
    texts = shown(results, tmp_path)
    for form in ("page", "terminal", "markdown", "job"):
        assert words in " ".join(texts[form].split()), form


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
