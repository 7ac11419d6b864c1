"""A run measures the algorithms of the bypass for later programs."""

import json
import os
import subprocess
import sys

import pytest

PROBLEM = "conv2d-fp32-n2-c8-i12x12-k8-f3x3-p1"


def run(tmp_path, *options):
    plans = {"ROCMPROBE_BYPASS_PLANS": str(tmp_path / "plans"), "ROCMPROBE_BYPASS_MEASURE": "1"}
    command = [sys.executable, "-m", "rocmprobe", "run", "--out", str(tmp_path / "out"), *options]
    return subprocess.run(
        [*command, "--only", "throughput"], env={**os.environ, **plans}, cwd=tmp_path, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.thorough
def test_a_run_fills_the_plan_file_for_what_it_times(tmp_path):
    done = run(tmp_path, "--device", "cpu", "--settings", "default,bypass", "--problem", PROBLEM)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "plans").iterdir()
    problems = [json.loads(line)["problem"] for line in file.read_text().split("\n") if line]
    assert sorted(each.split()[0] for each in problems) == ["bwd-data", "bwd-weights", "fwd"]


@pytest.mark.thorough
def test_what_a_simulated_machine_does_is_not_kept(tmp_path):
    options = ("--settings", "default,bypass", "--problem", PROBLEM)
    run(tmp_path, "--simulate", "healthy-gfx1100", *options)
    assert (tmp_path / "out" / "results.json").exists()
    assert not (tmp_path / "plans").exists()
