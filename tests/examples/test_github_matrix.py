"""The workflow over several runners: its shape, its steps as a shell runs them, the summary of its table."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import runs
import sample
import yaml
from markdown_reading import faults, sections

from rocmprobe.model.results_file import to_json

RECIPES = Path(__file__).parents[2] / "examples" / "github-actions"
#: YAML 1.1 reads the key "on" as true.
WORKFLOW = yaml.safe_load((RECIPES / "matrix.yml").read_text("utf-8"))
PROBE, TABLE = WORKFLOW["jobs"]["probe"], WORKFLOW["jobs"]["table"]
_OUTLIERS = "Machines that differ from others with the same GPU and software"


def step(job: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [each for each in job["steps"] if each["name"] == name]
    return found


def shell(folder: Path, job: dict[str, Any], name: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does, with rocmprobe, and with a stand-in for pipx that starts it."""
    for program, command in (("rocmprobe", '"$@"'), ("pipx", '"${@:5}"')):
        path = folder / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\nexec {sys.executable} -m rocmprobe {command}\n", "utf-8")
        path.chmod(0o755)
    env = runs.environment({"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **variables})
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step(job, name)["run"]]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_no_runner_ends_or_blocks_the_others_and_no_stranger_reaches_one() -> None:
    assert set(WORKFLOW[True]) == {"schedule", "workflow_dispatch"}
    assert WORKFLOW["permissions"] == {}
    assert PROBE["strategy"]["fail-fast"] is False
    assert PROBE["runs-on"] == ["self-hosted", "linux", "${{ matrix.gpu }}"]
    # The group of rdna1.yml is the same for its card.
    assert PROBE["concurrency"] == {"group": "${{ matrix.gpu }}", "cancel-in-progress": False}
    assert TABLE["if"] == "${{ !cancelled() }}"
    assert all(job["timeout-minutes"] for job in (PROBE, TABLE))
    assert not [each for job in (PROBE, TABLE) for each in job["steps"] if "${{" in each.get("run", "")]


def test_the_table_takes_what_the_runners_keep() -> None:
    kept, taken = step(PROBE, "Keep the run's folder"), step(TABLE, "Get the folders of all runners")
    assert kept["if"] == "${{ always() }}"
    assert kept["with"]["name"] == "gpu-${{ matrix.gpu }}"
    assert taken["with"] == {"pattern": "gpu-*", "path": "runs"}


def write(folder: Path, results: Any) -> None:
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(results), "utf-8")


def test_the_summary_of_the_job_says_what_works_where(tmp_path: Path) -> None:
    card = dataclasses.replace(sample.rdna1(), simulated=None)
    own = tuple(dataclasses.replace(each, check=each.rung) for each in card.outcomes)
    card = dataclasses.replace(card, outcomes=own)
    first, *rest = own
    worse = (dataclasses.replace(first, state="wrong"), *rest)
    for number, name in enumerate("abcd"):
        run = dataclasses.replace(card, started=f"2030-01-01T00:00:0{number}Z")
        write(tmp_path / "runs" / f"gpu-{name}", to_json(run))
    bad = dataclasses.replace(card, started="2030-01-02T00:00:00Z", outcomes=worse)
    write(tmp_path / "runs" / "gpu-bad", to_json(bad))
    changed = (own[0], dataclasses.replace(own[1], state="error"), *own[2:])
    later = dataclasses.replace(card, started="2031-01-01T00:00:00Z", outcomes=changed)
    write(tmp_path / "runs" / "gpu-d" / "later", to_json(later))
    foul = sample.HOSTILE.replace("\ud800", "")
    write(tmp_path / "runs" / "gpu-foul", sample.hostile(run, foul))
    write(tmp_path / "runs" / "gpu-dead", "<img src=x>")
    summary = tmp_path / "summary.md"
    variables = {"ROCMPROBE_PACKAGE": "x", "GITHUB_STEP_SUMMARY": str(summary)}
    ended = shell(tmp_path, TABLE, "Make the table", **variables)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "table.html").exists()
    text = summary.read_text("utf-8")
    assert faults(text) == []
    told = sections(text)
    assert set(told) == {"Not read", _OUTLIERS, "What changed"}
    assert "gpu-dead/results.json" in told["Not read"]
    assert re.match(r"\s*- `gpu-bad`: `wrong` instead of `pass` in ", told[_OUTLIERS])
    assert re.match(r"\s*- `gpu-d`: `pass` to `error` in ", told["What changed"])
    assert "5 of 5" in text


def test_without_a_package_to_install_the_job_says_which_variable_is_missing(tmp_path: Path) -> None:
    ended = shell(tmp_path, TABLE, "Make the table", ROCMPROBE_PACKAGE="")
    assert ended.returncode != 0
    assert "ROCMPROBE_PACKAGE" in ended.stderr


@pytest.mark.skipif(not shutil.which("actionlint"), reason="actionlint is not installed")
def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    labels = tmp_path / "actionlint.yaml"
    labels.write_text("self-hosted-runner:\n  labels: [rdna1, rdna2, rdna3]\n", "utf-8")
    command = ["actionlint", "-config-file", labels, *sorted(RECIPES.glob("*.yml"))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.skipif(not shutil.which("check-jsonschema"), reason="check-jsonschema is not installed")
def test_the_workflows_follow_github_s_schema() -> None:
    command = ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *RECIPES.glob("*.yml")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
