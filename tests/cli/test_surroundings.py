"""Whatever surrounds the user's shell, a run asks and answers the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from runs import SMALL, machine_file, rocmprobe, run

EXPECTED = {
    f"cpu/{setting}/convolution/conv2d-fp32-n1-c4-i8x8-k4-f3x3/fwd": "pass"
    for setting in ("default", "vendor-off")
}
STRANGE = "addopts = --strange-flag -p nosuchplugin\n"


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """A project whose pytest configuration and modules would break every run."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n" + STRANGE)
    (folder / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\n" + STRANGE.replace("= ", '= "').replace("\n", '"\n')
    )
    for module in ("conftest", "random", "selectors", "torch", "json"):
        (folder / f"{module}.py").write_text("raise RuntimeError('not for you')\n")
    return folder


@pytest.mark.thorough
def test_the_user_s_project_and_pytest_variables_do_not_reach_a_run(strange: Path, tmp_path: Path) -> None:
    # `-P` is what the rocmprobe script does by itself: the folder that it runs in is not on sys.path.
    env = {"PYTEST_ADDOPTS": "--strange-flag", "PYTEST_PLUGINS": "nosuchplugin", "PYTHONSAFEPATH": "1"}
    machine = machine_file(tmp_path / "machine.toml", gpus=2)
    given = ("--simulate", machine, "--device", "all", "-n", 2)
    done = run(strange / "out", *given, *SMALL, cwd=strange, env=env)
    assert done.ended.returncode == 0, done.ended.stderr
    assert len(done.states) == 4
    assert set(done.states.values()) == {"pass"}
    assert not done.results.partial
    assert {trial.start_method for trial in done.results.trials} == {"fork"}


@pytest.mark.thorough
def test_a_working_directory_that_is_gone_is_no_hindrance(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    before = Path.cwd()
    os.chdir(gone)
    gone.rmdir()
    try:
        done = run(tmp_path / "out", "--device", "cpu", *SMALL, env={"PYTHONSAFEPATH": "1"})
    finally:
        os.chdir(before)
    assert done.ended.returncode == 0, done.ended.stderr
    assert done.states == EXPECTED


@pytest.mark.thorough
def test_a_run_that_ends_leaves_no_temporary_folder_and_points_latest_at_itself(tmp_path: Path) -> None:
    scratch, project = tmp_path / "scratch", tmp_path / "project"
    scratch.mkdir()
    project.mkdir()
    env = {"TMPDIR": str(scratch), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = rocmprobe("run", "--device", "cpu", *SMALL, cwd=project, env=env)
    assert done.returncode == 0, done.stderr
    assert list(scratch.glob("rocmprobe-*")) == []
    latest = project / "reports" / "latest"
    assert {"report.html", "results.json", "journal.jsonl", "junit.xml"} <= set(os.listdir(latest))
    # It had --only.
    assert not (project / "reports" / "recommended").exists()
