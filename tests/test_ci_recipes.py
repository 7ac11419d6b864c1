"""The CI recipes as a shell runs them, each from an empty folder, with a small simulated machine."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from runs import environment, machine_file

CHECKOUT = Path(__file__).parents[1]
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
def shell(tmp_path: Path) -> Path:
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
    tmp_path: Path, shell: Path, recipe: str
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    env = environment({
        "PATH": f"{shell}{os.pathsep}{os.environ['PATH']}", "ROCMPROBE": "rocmprobe", "LEVEL": "quick",
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
