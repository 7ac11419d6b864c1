"""A run as a step of a GitHub workflow, and its results as texts to paste."""

from __future__ import annotations

from pathlib import Path

import pytest
import sample
from runs import SMALL, Run, cli, machine_file

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.summary import summarize
from rocmprobe.model.results_file import read_results, write_results
from rocmprobe.report.issue.issue import issue_text
from rocmprobe.report.terminal.github import job_summary, workflow_commands
from rocmprobe.report.terminal.markdown import markdown


@pytest.fixture
def step(tmp_path: Path) -> Run:
    machine = machine_file(tmp_path / "machine.toml", {"library": "miopen", "effect": "raise"})
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    ended = cli("run", "--out", tmp_path / "run", "--simulate", machine, *SMALL, env=github)
    return Run(tmp_path / "run", ended)


@pytest.mark.thorough
def test_a_step_has_a_summary_and_annotations_and_nothing_else_commands(step: Run, tmp_path: Path) -> None:
    assert step.ended.returncode == 1, step.ended.stderr
    first, *shown = step.ended.stdout.splitlines()
    token = first.removeprefix("::stop-commands::")
    assert token != first
    resumed = shown.index(f"::{token}::")
    assert "Verdict:" in "".join(shown[:resumed])
    assert shown[resumed + 1 :] == workflow_commands(summarize(step.results)) != []
    assert (tmp_path / "summary.md").read_text("utf-8") == f"\n{job_summary(summarize(step.results))}"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_results(sample.rdna1(), tmp_path / "results.json")
    return tmp_path / "results.json"


def test_texts_go_to_the_terminal_or_into_a_file(results: Path, tmp_path: Path) -> None:
    read = judge(read_results(results))
    done = cli("report", results, "--format", "issue")
    assert (done.returncode, done.stdout, done.stderr) == (0, issue_text(summarize(read)), "")
    target = tmp_path / "report.md"
    done = cli("report", results, "--format", "md", "-o", target)
    assert (done.returncode, done.stdout) == (0, f"{target}\n")
    assert target.read_text("utf-8") == markdown(summarize(read))
