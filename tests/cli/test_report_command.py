"""``rocmprobe report`` on a folder, and the commands of a run's end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import sample
from runs import cli

from rocmprobe.judge.summary import summarize, with_commands_for
from rocmprobe.model.results_file import write_results


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
