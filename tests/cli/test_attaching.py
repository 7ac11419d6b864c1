"""A run as a step of a GitHub workflow, and its results as a page and as texts to paste."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sample
from runs import SMALL, Run, cli, machine_file

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.summary import summarize, with_commands_for
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


def test_a_folder_needs_only_its_results(tmp_path: Path) -> None:
    write_results(sample.healthy_cpu(), tmp_path / "results.json")
    ended = cli("report", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "report.html").exists()


def test_a_stored_recommendation_that_contradicts_the_outcomes_is_not_shown(tmp_path: Path) -> None:
    judged = sample.rdna1()
    assert judged.recommendation is not None
    wrong = replace(judged.recommendation, verdict="native", sentence="Native convolution works.")
    write_results(replace(judged, recommendation=wrong), tmp_path / "results.json")
    assert (
        "Native convolution works." not in cli("report", tmp_path / "results.json", "--format", "md").stdout
    )
    assert "Native convolution works." not in cli("explain", tmp_path / "results.json").stdout


def test_the_end_of_a_run_prints_the_absolute_path_of_its_profile() -> None:
    summary = summarize(sample.rdna1())
    here = with_commands_for(summary, "/runs/one")
    assert here.to_copy.command is not None
    assert " --profile /runs/one " in here.to_copy.command.body
    assert here.verify == "rocmprobe run --verify /runs/one/results.json"
    assert here.headline == summary.headline


def test_the_script_begins_with_the_result_and_the_driver_s_line(results: Path) -> None:
    done = cli("repro", results, f"gemm-only/convolution/{sample.PROBLEMS[1].text}/fwd")
    assert (done.returncode, done.stderr) == (0, "")
    compile(done.stdout, "repro.py", "exec")
    found, _, exit_code, driver, *script = done.stdout.splitlines()
    assert "rocmprobe" not in "".join(script)
    assert sample.STATUS in found
    assert exit_code.startswith("# Exit code: 1 if the failure is reproduced")
    assert driver.startswith("# ")
    assert "MIOPEN_DEBUG_CONV_DIRECT=0" in driver
    assert driver.endswith(
        " MIOpenDriver conv -n 2 -c 64 -H 14 -W 14 -k 64 -y 1 -x 1 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1"
        " -m conv -g 1 -F 1 -t 1"
    )
