"""The recipe for ReFrame, by ReFrame itself where it is installed."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RECIPE = Path(__file__).parents[2] / "examples" / "reframe"
PROGRAM = Path(sys.executable).with_name("rocmprobe")
needs_reframe = pytest.mark.skipif(not shutil.which("reframe"), reason="ReFrame is not installed")


def reframe(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """The exit code of ReFrame on this machine, the test case of its report, and what it printed."""
    ended = subprocess.run(
        ["reframe", "-C", RECIPE / "settings.py", "-c", RECIPE / "rocmprobe_test.py", "--prefix", folder,
         "--system", "example:local", f"--report-file={folder}/report.json", *options, "-r"],
        cwd=folder, env={**os.environ, "HOME": str(folder)}, text=True, capture_output=True, check=False,
    )  # fmt: skip
    report = json.loads((folder / "report.json").read_text("utf-8"))
    (case,) = report["runs"][0]["testcases"]
    return ended.returncode, case, ended.stdout


def answering(folder: Path, answer: str, code: int) -> str:
    """The option that puts a stand-in in the place of rocmprobe."""
    script = folder / "stand-in"
    script.write_text(f"#!/bin/sh\ncat <<'E'\n{answer}\nE\nexit {code}\n", "utf-8")
    script.chmod(0o755)
    return f"executable={script}"


def test_python_takes_the_files() -> None:
    compile((RECIPE / "rocmprobe_test.py").read_text("utf-8"), "rocmprobe_test.py", "exec")
    (system,) = runpy.run_path(str(RECIPE / "settings.py"))["site_configuration"]["systems"]
    schedulers = {each["name"]: each["scheduler"] for each in system["partitions"]}
    assert schedulers == {"local": "local", "gpu": "squeue"}


@needs_reframe
@pytest.mark.parametrize(("state", "result"), [
    ("ok", "pass"), ("problem", "fail"), ("unknown", "skip"), ("busy", "skip"), ("nothing", "skip"),
])  # fmt: skip
def test_the_state_of_the_check_decides(tmp_path: Path, state: str, result: str) -> None:
    answer = json.dumps({"state": state, "verdict": f"{state}: {{of}} this"})
    _, case, printed = reframe(tmp_path, "-n", "RocmprobeCheck", "-S", answering(tmp_path, answer, 1))
    assert case["result"] == result
    if result != "pass":
        assert f"{state}: {{of}} this" in printed


@needs_reframe
def test_a_check_that_writes_nothing_fails(tmp_path: Path) -> None:
    code, case, _ = reframe(tmp_path, "-n", "RocmprobeCheck", "-S", "executable=/no/such/program")
    assert (code, case["result"]) == (1, "fail")
    assert "check.json was not written" in str(case)


@pytest.mark.thorough
@needs_reframe
def test_a_run_gives_figures_and_keeps_its_folder(tmp_path: Path) -> None:
    code, case, _ = reframe(
        tmp_path, "-n", "RocmprobeRun", "-S", f"executable={PROGRAM}", "-S", "simulate=healthy-gfx1100",
        "-S", "RocmprobeRun.arguments=--settings default,vendor-off --only gemm --only convolution "
        "--only throughput",
    )  # fmt: skip
    assert (code, case["result"]) == (0, "pass")
    figures = {key: value for key, value in case["perfvalues"].items() if ":conv2d-" in key}
    assert figures
    assert all(value[0] > 0 for value in figures.values())
    (kept,) = tmp_path.glob("output/**/run/results.json")
    assert json.loads(kept.read_text("utf-8"))["simulated"] == "healthy-gfx1100"
