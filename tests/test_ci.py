"""CI with a self-hosted runner: the shape of the workflow, its steps and the recipes as a shell runs them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import environment, machine_file

CHECKOUT = Path(__file__).parents[1]
#: YAML 1.1 reads the key "on" as true.
WORKFLOW = yaml.safe_load((CHECKOUT / "examples/github-actions/rdna1.yml").read_text("utf-8"))
JOBS = WORKFLOW["jobs"]
ARTIFACTS = [
    # id of the run, created, expired, branch, repository of the branch
    (1, "2026-01-01", False, "main", 7), (2, "2026-01-03", True, "main", 7),
    (3, "2026-01-04", False, "other", 7), (4, "2026-01-05", False, "main", 8),
    (5, "2026-01-02", False, "main", 7),
]  # fmt: skip


def step(job: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in JOBS[job]["steps"] if each.get("name") == name]
    return found


def stand_in(folder: Path, name: str, body: str) -> None:
    """A program that notes its arguments, one call a line, and then does what ``body`` says."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/bash\necho "{name} $*" >> "{folder}/calls"\n{body}\n', "utf-8")
    path.chmod(0o755)


def shell(folder: Path, job: str, name: str, **variables: str) -> tuple[int, dict[str, str], list[str]]:
    """Run a step as GitHub does; its exit code, its outputs, and the calls of stand-ins."""
    output, calls = folder / "output", folder / "calls"
    output.write_text("", "utf-8")
    calls.write_text("", "utf-8")
    env = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "GITHUB_OUTPUT": str(output),
        "GITHUB_REPOSITORY": "o/r", "ROCMPROBE": "rocmprobe", **variables,
    }  # fmt: skip
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step(job, name)["run"]]
    ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    outputs = dict(line.split("=", 1) for line in output.read_text("utf-8").splitlines())
    return ended.returncode, outputs, calls.read_text("utf-8").splitlines()


def test_an_offline_runner_blocks_nobody_and_no_stranger_reaches_it() -> None:
    assert set(WORKFLOW[True]) == {"schedule", "workflow_dispatch"}
    assert WORKFLOW["concurrency"] == {"group": "rdna1", "cancel-in-progress": False}
    assert JOBS["probe"]["runs-on"] == ["self-hosted", "linux", "rdna1"]
    assert all(job["timeout-minutes"] for job in JOBS.values())
    assert WORKFLOW["permissions"] == {}
    writing = {name for name, job in JOBS.items() if "write" in job["permissions"].values()}
    assert writing == {"tell"}
    # What a stranger may name is never pasted into a script.
    assert not [each for job in JOBS.values() for each in job["steps"] if "${{" in each.get("run", "")]


def test_the_report_is_kept_always_and_the_baseline_after_success_alone() -> None:
    assert step("probe", "Keep report, results and journal")["if"] == "${{ always() }}"
    assert step("probe", "Keep the results as the next baseline")["if"] == "${{ success() }}"
    named = [each["with"]["name"] for job in JOBS.values() for each in job["steps"] if "with" in each]
    baseline = "rdna1-baseline-${{ env.LEVEL }}"
    assert named == [baseline, "rdna1-report", baseline]


@pytest.mark.skipif(not shutil.which("jq"), reason="gh is stood in for by jq, which is not installed")
@pytest.mark.parametrize(("listed", "found"), [(ARTIFACTS, "5"), (ARTIFACTS[1:4], ""), ([], "")])
def test_the_baseline_is_the_last_one_of_this_branch_and_repository(
    tmp_path: Path, listed: list[tuple[Any, ...]], found: str
) -> None:
    artifacts = [
        {"created_at": created, "expired": expired, "workflow_run": {
            "id": number, "head_branch": branch, "repository_id": 7, "head_repository_id": repository}}
        for number, created, expired, branch, repository in listed
    ]  # fmt: skip
    (tmp_path / "artifacts.json").write_text(json.dumps({"artifacts": artifacts}), "utf-8")
    stand_in(tmp_path, "gh", f'jq -r "$4" "{tmp_path}/artifacts.json"')
    code, outputs, calls = shell(tmp_path, "baseline", "Find the last good run", BRANCH="main", LEVEL="quick")
    assert (code, outputs) == (0, {"run-id": found})
    assert calls[0].startswith("gh api repos/o/r/actions/artifacts?name=rdna1-baseline-quick&")


@pytest.mark.parametrize("code", [0, 1, 4])
def test_a_run_is_held_against_the_baseline_and_its_code_is_kept(tmp_path: Path, code: int) -> None:
    stand_in(tmp_path, "rocmprobe", f"exit {code}")
    (tmp_path / "baseline").mkdir()
    (tmp_path / "baseline/results.json").touch()
    ended = shell(tmp_path, "probe", "Run", LEVEL="quick")
    expected = "--level quick --baseline baseline/results.json --fail-on regressions"
    command = f"rocmprobe run --device cuda:0 {expected} --out now"
    assert ended == (code, {"code": str(code)}, [command])


def test_the_first_run_has_no_baseline_and_compares_nothing(tmp_path: Path) -> None:
    stand_in(tmp_path, "rocmprobe", "")
    command = "rocmprobe run --device cuda:0 --level long --fail-on never --out now"
    assert shell(tmp_path, "probe", "Run", LEVEL="long") == (0, {"code": "0"}, [command])
    assert shell(tmp_path, "probe", "Compare with the baseline") == (0, {"code": "0"}, [])


def test_what_became_slower_fails_the_job_too(tmp_path: Path) -> None:
    stand_in(tmp_path, "rocmprobe", "exit 1")
    for name in ("baseline", "now"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").touch()
    command = "rocmprobe compare baseline/results.json now/results.json"
    assert shell(tmp_path, "probe", "Compare with the baseline") == (1, {"code": "1"}, [command])


def test_every_variable_is_read_by_a_step_and_jobs_agree_on_the_level() -> None:
    assert WORKFLOW["env"] == {"LEVEL": "${{ inputs.level || 'standard' }}"}
    for job in JOBS.values():
        steps = [each.get("run", "") + str(each.get("with", "")) for each in job["steps"]]
        assert not [name for name in job.get("env", {}) if not any(name in text for text in steps)]


def test_an_issue_is_opened_once(tmp_path: Path) -> None:
    variables = {"WEDGED": "false", "RUN_URL": "https://github.com/o/r/actions/runs/1"}
    stand_in(tmp_path, "gh", "")
    code, _, calls = shell(tmp_path, "tell", "Open an issue, unless one is open", **variables)
    assert code == 0
    (created,) = [call for call in calls if call.startswith("gh issue create")]
    assert "--label rdna1-regression" in created
    assert "RDNA1: something that worked fails" in created
    assert variables["RUN_URL"] in created
    stand_in(tmp_path, "gh", 'if [ "$2" = list ]; then echo 12; fi')
    code, _, calls = shell(tmp_path, "tell", "Open an issue, unless one is open", **variables)
    assert (code, len(calls)) == (0, 1)


def test_the_gitlab_job_of_the_document_is_yaml_with_a_junit_report() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (CHECKOUT / "docs/ci.md").read_text("utf-8"), re.DOTALL)
    job = yaml.safe_load(block)["rdna1"]
    assert job["tags"] == ["rdna1"]
    assert {f"rdna1-baseline-{level}" for level in re.findall(r"--level (\w+)", job["script"][1])} == {
        job["cache"]["key"]
    }
    assert job["artifacts"]["when"] == "always"
    assert job["artifacts"]["reports"] == {"junit": "now/junit.xml"}


DOCUMENT = (CHECKOUT / "docs" / "ci.md").read_text("utf-8")
BASELINE, NIGHT = re.findall(r"^```sh\n(.*?)^```", DOCUMENT, flags=re.DOTALL | re.MULTILINE)
(GITLAB,) = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, flags=re.DOTALL | re.MULTILINE)


def github(workflow: str, job: str, *names: str) -> str:
    """Return the scripts of some steps of a job as one."""
    content = yaml.safe_load((CHECKOUT / "examples/github-actions" / workflow).read_text("utf-8"))
    steps = {each.get("name"): each.get("run") for each in content["jobs"][job]["steps"]}
    return "\n".join(f"( {steps[name]}\n)" for name in names)


#: What the runner does for the workflow: a successful run becomes the next baseline.
KEEP = "mkdir -p baseline && cp now/results.json baseline/"
RECIPES = {
    "document": (BASELINE, NIGHT),
    "GitLab": ("\n".join(yaml.safe_load(GITLAB)["rdna1"]["script"]),) * 2,
    "GitHub": (
        # The first step would remove the baseline, which the runner downloads again.
        "\n".join((github("rdna1.yml", "probe", "Run", "Compare with the baseline"), KEEP, "rm -rf now")),
    ) * 2,
}  # fmt: skip


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The folder of a program `rocmprobe` whose runs are small and of a simulated machine."""
    machine, program = machine_file(tmp_path / "machine.toml"), tmp_path / "bin" / "rocmprobe"
    program.parent.mkdir()
    small = shlex.join(["--simulate", str(machine), "--only", "gemm", "--settings", "default"])
    program.write_text(
        f'#!/bin/sh\n[ "$1" = run ] && set -- "$@" {small}\nexec {sys.executable} -m rocmprobe "$@"\n'
    )
    program.chmod(0o755)
    return program.parent


@pytest.mark.thorough
@pytest.mark.parametrize("recipe", ["document", "GitHub", "GitLab"])
def test_a_recipe_works_from_an_empty_folder_and_every_night(
    tmp_path: Path, program: Path, recipe: str
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    env = environment({
        "PATH": f"{program}{os.pathsep}{os.environ['PATH']}", "ROCMPROBE": "rocmprobe", "LEVEL": "quick",
        "GITHUB_OUTPUT": str(tmp_path / "output"), "PYTHONPATH": str(CHECKOUT),
    })  # fmt: skip
    for night, script in enumerate(RECIPES[recipe]):
        ended = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script], cwd=folder, env=env, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, (night, ended.stdout, ended.stderr)
        assert (folder / "baseline" / "results.json").exists()
    assert "No change." in ended.stdout
