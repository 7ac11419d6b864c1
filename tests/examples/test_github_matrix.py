"""The workflow over several runners: its shape."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

RECIPES = Path(__file__).parents[2] / "examples" / "github-actions"
#: YAML 1.1 reads the key "on" as true.
WORKFLOW = yaml.safe_load((RECIPES / "matrix.yml").read_text("utf-8"))
PROBE = WORKFLOW["jobs"]["probe"]


def test_no_runner_ends_or_blocks_the_others_and_no_stranger_reaches_one() -> None:
    assert set(WORKFLOW[True]) == {"schedule", "workflow_dispatch"}
    assert WORKFLOW["permissions"] == {}
    assert PROBE["strategy"]["fail-fast"] is False
    assert PROBE["runs-on"] == ["self-hosted", "linux", "${{ matrix.gpu }}"]
    # The group of rdna1.yml is the same for its card.
    assert PROBE["concurrency"] == {"group": "${{ matrix.gpu }}", "cancel-in-progress": False}
    assert PROBE["timeout-minutes"]
    assert not [each for each in PROBE["steps"] if "${{" in each.get("run", "")]


def test_the_folder_of_each_run_is_kept() -> None:
    (kept,) = [each for each in PROBE["steps"] if each["name"] == "Keep the run's folder"]
    assert kept["if"] == "${{ always() }}"
    assert kept["with"]["name"] == "gpu-${{ matrix.gpu }}"


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
