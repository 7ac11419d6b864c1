"""The recipes for Slurm: what they call, by stand-ins of Slurm's commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rocmprobe.cli.base import command

RECIPES = Path(__file__).parents[2] / "examples" / "slurm"
SCRIPTS = sorted(RECIPES.glob("*.sh"))
PROBLEM = "problem: hang in convolution fwd float32, default on gfx1010 (cuda:0): no answer in 20 s"


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """The file in which each stand-in writes how it was called; tmp_path/bin is their folder."""
    (tmp_path / "bin").mkdir()
    for name in ("sinfo", "sbatch", "scontrol", "logger", "rocmprobe"):
        stand_in(tmp_path, name, "")
    return tmp_path / "calls.txt"


def stand_in(folder: Path, name: str, answer: str) -> None:
    script = folder / "bin" / name
    script.write_text(f'#!/bin/bash\nprintf "%s\\n" "{name} $*" >>"{folder}/calls.txt"\n{answer}\n', "utf-8")
    script.chmod(0o755)


def shell(folder: Path, script: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(script), *arguments], cwd=folder, text=True, capture_output=True, timeout=60, check=False,
        env={"PATH": f"{folder}/bin:/usr/bin:/bin", **variables},
    )  # fmt: skip


def installed(folder: Path) -> Path:
    """The health check beside settings that name the stand-ins, as on a node."""
    for name in ("health-check.sh", "epilog.sh"):
        shutil.copy(RECIPES / name, folder / name)
    (folder / "rocmprobe.env").write_text(
        f"ROCMPROBE={folder}/bin/rocmprobe\nPATH={folder}/bin:/usr/bin:/bin\n"
        'RESULTS="/state/$SLURMD_NODENAME/results.json"\nSLURM_CONF=/somewhere/slurm.conf\n',
        "utf-8",
    )
    return folder / "health-check.sh"


@pytest.mark.parametrize("script", [*SCRIPTS, RECIPES / "rocmprobe.env"], ids=lambda path: path.name)
def test_bash_takes_each_script(script: Path) -> None:
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    assert script.suffix == ".env" or os.access(script, os.X_OK)


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    names = [script.name for script in SCRIPTS]
    ended = subprocess.run(
        ["shellcheck", "-x", *names], cwd=RECIPES, text=True, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "")


def test_rocmprobe_takes_what_the_scripts_call() -> None:
    text = "".join(script.read_text("utf-8") for script in SCRIPTS).replace("\\\n", " ")
    called = re.findall(r'(?:^exec |\$\()"\$\{?ROCMPROBE[^ ]*" (\w+) (.*)$', text, re.MULTILINE)
    assert sorted(name for name, _ in called) == ["check", "run"]
    for name, arguments in called:
        words = arguments.replace("$BUDGET", "50").replace('"', "").rstrip(")").split()
        command(name).make_context(name, [each for each in words if not each.startswith("$@")])


def test_each_node_gets_one_task(tmp_path: Path, calls: Path) -> None:
    stand_in(tmp_path, "sinfo", "printf '%s\\n' gpu2 gpu1 gpu2")
    stand_in(tmp_path, "sbatch", 'echo "7;farm"')
    ended = shell(tmp_path, RECIPES / "submit.sh", "--level", "quick", SBATCH_PARTITION="gpu")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert calls.read_text("utf-8").splitlines() == [
        "sinfo --Node --noheader --format=%N --states=idle,mixed,allocated,completing --partition=gpu",
        f"sbatch --parsable --hold --array=1-2 {RECIPES}/array.sh --level quick",
        "scontrol update JobId=7_1 ReqNodeList=gpu1",
        "scontrol update JobId=7_2 ReqNodeList=gpu2",
        "scontrol release 7",
    ]
    assert (tmp_path / "results").is_dir()
    assert ended.stdout == "array 7 on 2 nodes; then compare them: rocmprobe compare results/*/*\n"


def test_without_a_node_nothing_is_submitted(tmp_path: Path, calls: Path) -> None:
    ended = shell(tmp_path, RECIPES / "submit.sh")
    assert (ended.returncode, ended.stderr) == (2, "submit.sh: no node can run jobs; see sinfo\n")
    assert "sbatch" not in calls.read_text("utf-8")


@pytest.mark.parametrize("code", [0, 1, 5])
def test_a_task_runs_in_a_folder_of_its_node_and_ends_with_its_code(
    tmp_path: Path, calls: Path, code: int
) -> None:
    stand_in(tmp_path, "rocmprobe", f"exit {code}")
    job = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2", "SLURMD_NODENAME": "gpu2"}
    ended = shell(tmp_path, RECIPES / "array.sh", "--level", "long", SLURM_SUBMIT_DIR="/home/a user", **job)
    assert ended.returncode == code
    assert calls.read_text("utf-8") == "rocmprobe run --level long --out /home/a user/results/gpu2/7_2\n"


def test_a_problem_drains_the_node_with_the_verdict_as_reason(tmp_path: Path, calls: Path) -> None:
    stand_in(tmp_path, "rocmprobe", f"echo '{PROBLEM}'; exit 1")
    stand_in(tmp_path, "sinfo", "echo idle")
    stand_in(tmp_path, "scontrol", f'echo "$SLURM_CONF" >>"{calls}"')
    script = installed(tmp_path)
    # What slurmd gives: the name of the node, and nothing else.
    ended = subprocess.run([str(script)], env={"SLURMD_NODENAME": "gpu2"}, timeout=60, check=False)
    assert ended.returncode == 0
    assert calls.read_text("utf-8").splitlines() == [
        "rocmprobe check /state/gpu2/results.json --budget 50",
        f"logger --tag rocmprobe -- gpu2: {PROBLEM}",
        "sinfo --noheader --nodes=gpu2 --format=%T",
        f"scontrol update NodeName=gpu2 State=DRAIN Reason=rocmprobe: {PROBLEM}",
        "/somewhere/slurm.conf",
    ]


@pytest.mark.parametrize(("verdict", "code"), [
    ("ok: default on gfx1010 (cuda:0): 10 checks correct in 6.6 s", 0),
    ("busy: pid 4711 (python) has the GPU open; nothing was tested", 6),
    ("unknown: out of time", 6),
    ("nothing: no such device", 3),
    ("", 1),  # a Python that does not start
])  # fmt: skip
def test_what_is_no_problem_is_logged_and_changes_nothing(
    tmp_path: Path, calls: Path, verdict: str, code: int
) -> None:
    stand_in(tmp_path, "rocmprobe", f"echo '{verdict}'; exit {code}")
    assert shell(tmp_path, installed(tmp_path), SLURMD_NODENAME="gpu2").returncode == 0
    made = calls.read_text("utf-8").splitlines()
    assert made[1:] == [f"logger --tag rocmprobe -- gpu2: {verdict or 'no verdict'}"]


@pytest.mark.parametrize("state", ["drained", "draining", "drained*"])
def test_the_reason_of_a_drained_node_stays(tmp_path: Path, calls: Path, state: str) -> None:
    stand_in(tmp_path, "rocmprobe", f"echo '{PROBLEM}'; exit 1")
    stand_in(tmp_path, "sinfo", f"echo '{state}'")
    shell(tmp_path, installed(tmp_path), SLURMD_NODENAME="gpu2")
    assert "scontrol" not in calls.read_text("utf-8")


def test_the_epilog_checks_briefly_and_never_fails(tmp_path: Path, calls: Path) -> None:
    stand_in(tmp_path, "rocmprobe", f"echo '{PROBLEM}'; exit 1")
    stand_in(tmp_path, "scontrol", "exit 1")
    installed(tmp_path)
    assert shell(tmp_path, tmp_path / "epilog.sh", SLURMD_NODENAME="gpu2").returncode == 0
    assert "--budget 20\n" in calls.read_text("utf-8")
    assert "State=DRAIN" in calls.read_text("utf-8")
