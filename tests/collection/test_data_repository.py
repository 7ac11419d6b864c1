"""The folder to copy for a repository of results: its form, its workflow, its scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import CHECKOUT, environment

FOLDER = CHECKOUT / "examples" / "data-repository"
FORM = FOLDER / ".github/ISSUE_TEMPLATE/report.yml"
WORKFLOW = FOLDER / ".github/workflows/results.yml"
SCRIPTS = ("check", "pages", "take")


def tool(name: str) -> str:
    found = os.environ.get(f"ROCMPROBE_TEST_{name.upper().replace('-', '_')}") or shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.mark.parametrize(("path", "schema"), [(FORM, "issue-forms"), (WORKFLOW, "workflows")])
def test_form_and_workflow_keep_to_the_schemas_of_github(path: Path, schema: str) -> None:
    command = [tool("check-jsonschema"), "--builtin-schema", f"vendor.github-{schema}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_actionlint_finds_nothing() -> None:
    done = subprocess.run([tool("actionlint"), str(WORKFLOW)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def steps(job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"][job]["steps"]
    return found


def test_a_stranger_gets_no_secret_and_no_permission() -> None:
    text = WORKFLOW.read_text("utf-8")
    workflow = yaml.safe_load(text)
    assert set(workflow[True]) == {"pull_request", "push"}  # YAML 1.1 reads the key "on" as true
    assert "secrets." not in text
    assert workflow["permissions"] == {}
    jobs = workflow["jobs"]
    assert jobs["validate"]["permissions"] == {"contents": "read"}
    assert jobs["validate"]["if"] == "github.event_name == 'pull_request'"
    writing = {name for name, job in jobs.items() if "write" in job["permissions"].values()}
    assert writing == {"publish"}
    # Only what was pushed to main is published.
    assert jobs["publish"]["needs"] == "pages"
    assert jobs["pages"]["if"] == "github.event_name == 'push'"
    assert workflow[True]["push"] == {"branches": ["main"]}
    every = [each for name in jobs for each in steps(name)]
    assert not [each for each in every if "${{" in each.get("run", "")]
    actions = [each["uses"] for each in every if "uses" in each]
    assert all(action.startswith("actions/") and action.rpartition("@v")[2].isdigit() for action in actions)
    checkouts = [each for each in every if each.get("uses", "").startswith("actions/checkout")]
    assert all(each["with"]["persist-credentials"] is False for each in checkouts)


def test_a_pull_request_is_checked_by_the_scripts_that_are_there_already() -> None:
    first, second = (each["with"] for each in steps("validate")[:2])
    assert (first["path"], first["ref"]) == ("accepted", "${{ github.event.pull_request.base.sha }}")
    assert second["path"] == "proposed"
    run = [each["run"] for each in steps("validate") if "run" in each]
    assert run == [
        "pip install -r accepted/ci/requirements.txt",
        "accepted/ci/check proposed/bundles accepted/bundles",
    ]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_only_calls_rocmprobe(name: str) -> None:
    path = FOLDER / "ci" / name
    assert os.access(path, os.X_OK)
    first, *lines = path.read_text("utf-8").splitlines()
    assert first == "#!/bin/sh"
    commands = [line for line in lines if not line.startswith("#")]
    assert commands[0] == "set -eu"
    (call,) = commands[1:]
    assert call.startswith(("exec rocmprobe submit --check ", "exec rocmprobe table "))


def test_an_empty_repository_gives_an_empty_site(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "repository")
    program = tmp_path / "bin" / "rocmprobe"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocmprobe "$@"\n')
    program.chmod(0o755)
    env = environment({"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(CHECKOUT)})
    command = ["ci/pages", "bundles", "site", "https://example.org/r"]
    done = subprocess.run(
        command, cwd=tmp_path / "repository", env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "repository/site/index.html").read_text("utf-8")
    assert "Nothing was submitted yet" in page
    assert "https://example.org/r" in page


def test_the_form_asks_for_the_bundle_and_for_consent() -> None:
    body = yaml.safe_load(FORM.read_text("utf-8"))["body"]
    fields = {each["id"]: each for each in body if "id" in each}
    assert fields["bundle"]["validations"]["required"]
    assert all(each["required"] for each in fields["terms"]["attributes"]["options"])
