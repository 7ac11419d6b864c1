"""What breaks on the controller's side of a question costs that question, not the run."""

from __future__ import annotations

import shutil
from pathlib import Path

from runs import PROBLEM, Background, kinds

from rocmprobe.model.results import read_results


def test_a_folder_taken_away_in_mid_run_is_a_probe_error_of_each_question_that_needs_it(
    tmp_path: Path,
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    run = Background(
        tmp_path / "out", "--device", "cpu", "--only", "convolution", "--problem", PROBLEM,
        "--settings", "vendor-off,bypass", env={"TMPDIR": str(temporary)},
    )  # fmt: skip
    assert run.reaches(lambda: kinds(run.folder).count("outcome") >= 1)
    for folder in temporary.glob("rocmprobe-[0-9]*"):
        shutil.rmtree(folder)
        folder.touch()
    printed = run.process.communicate(timeout=120)[0]
    assert run.process.returncode == 1, printed
    results = read_results(run.folder / "results.json")
    assert not results.partial
    broken = [outcome for outcome in results.outcomes if outcome.state == "probe-error"]
    assert {outcome.setting for outcome in broken} >= {"bypass"}
    assert all("NotADirectoryError" in outcome.evidence[0] for outcome in broken)
    assert {outcome.state for outcome in results.outcomes} == {"pass", "probe-error"}
    assert "[probe-error]" in printed
