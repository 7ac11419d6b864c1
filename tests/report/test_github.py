"""What GitHub shows of a run: workflow commands, the summary of a job, and a run that neither can stop."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import sample
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from rocmprobe.cli.github_job import annotate, no_commands
from rocmprobe.judge.summary import summarize
from rocmprobe.model.changes import Change, Changes
from rocmprobe.model.results import Finding
from rocmprobe.report.terminal.github import MOST, job_summary, workflow_commands

ON_GITHUB = {"GITHUB_ACTIONS": "true"}


def test_each_finding_is_a_command_of_its_kind() -> None:
    results = sample.rdna1()
    said = workflow_commands(summarize(results))
    assert [line.split(" ")[0] for line in said] == ["::error", "::warning", "::notice"]
    assert "::error title=SIMULATED%3A miopen-no-solver (MIOpen)::" in said[0]
    assert results.findings[0].title in said[0]


@given(
    st.text(max_size=40),
    st.sampled_from(["%0A::error::x", "\n::set-output name=a::b", "::", ",file=x:y", "\r"]),
)
@settings(max_examples=examples(60))
def test_no_text_makes_a_command_of_its_own(text: str, attack: str) -> None:
    found = Finding("x", "error", f"{text}{attack}", text, f"{attack}{text}", advice=attack)
    (command,) = workflow_commands(summarize(dataclasses.replace(sample.rdna1(), findings=(found,))))
    assert len(command.splitlines()) == 1
    assert re.fullmatch(r"::error title=[^:,\r\n]*::[^\r\n]*", command)
    assert not re.search(r"%(?!25|0A|0D|3A|2C)", command)


def test_at_most_ten_of_a_kind_and_regressions_first() -> None:
    results = sample.rdna1()
    changed = (Change("cuda:0/x", "pass", "crash", "regression"),)
    many = dataclasses.replace(
        results,
        findings=results.findings[:1] * 30,
        changes=Changes("old.json", results.started, "0.1.0", 3, changed),
    )
    said = workflow_commands(summarize(many))
    assert len(said) == MOST
    assert "Regression::cuda:0/x: was pass, is crash" in said[0]
    assert "22 findings more of this kind" in said[-1]


def test_the_summary_is_appended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "summary.md"
    path.write_text("what stood there", "utf-8")
    annotate(summarize(sample.rdna1()), {"GITHUB_STEP_SUMMARY": str(path)})
    text = path.read_text("utf-8")
    assert text.startswith("what stood there\n# rocmprobe: Bypass")
    assert text.endswith(job_summary(summarize(sample.rdna1())))
    assert capsys.readouterr() == ("", "")


def full(folder: Path) -> Path:
    path = folder / "full.md"
    path.write_bytes(b"x" * (2**20 - 10))
    return path


@pytest.mark.parametrize("place", [full, lambda folder: folder, lambda folder: folder / "none" / "x.md"])
def test_a_summary_that_cannot_be_written_is_one_line(place, tmp_path: Path, capsys) -> None:
    path = place(tmp_path)
    size = path.stat().st_size if path.is_file() else 0
    annotate(summarize(sample.rdna1()), {"GITHUB_STEP_SUMMARY": str(path)})
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("rocmprobe: no summary of the job: ")
    assert len(said.err.splitlines()) == 1
    assert not path.is_file() or path.stat().st_size == size


def test_what_a_run_prints_commands_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with no_commands(ON_GITHUB):
        print("::error::from a log")
    annotate(summarize(sample.rdna1()), ON_GITHUB)
    stop, log, resume, *commands = capsys.readouterr().out.splitlines()
    token = stop.removeprefix("::stop-commands::")
    assert len(token) == 32
    assert (log, resume) == ("::error::from a log", f"::{token}::")
    assert len(commands) == 3
    with no_commands({}):
        annotate(summarize(sample.rdna1()), {})
    assert capsys.readouterr().out == ""
