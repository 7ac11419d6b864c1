"""A user's model: its convolutions are recorded, and then asked about and timed, weighted by their counts."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from runs import rocmprobe, run

from rocmprobe.cli.verify import verification_options
from rocmprobe.model.options import RunOptions
from rocmprobe.model.results import Configuration, Recommendation
from rocmprobe.model.results_file import from_json
from rocmprobe.model.shapes import Shapes

MODEL = """
import multiprocessing, torch
from torch import nn

torch.set_num_threads(1)
network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

def evaluate():
    with torch.no_grad():
        network(torch.ones(2, 2, 5, 5))

for step in range(8):
    optimizer.zero_grad()
    network(torch.ones(1, 2, 5, 5)).sum().backward()
    if step == 4:
        evaluate()
    optimizer.step()
process = multiprocessing.get_context("fork").Process(target=evaluate)
process.start()
process.join()
"""
FIRST, SECOND = "conv2d-fp32-n1-c2-i5x5-k4-f3x3-bias", "conv2d-fp32-n1-c4-i3x3-k4-f3x3-bias"
LARGE = ["conv2d-fp32-n2-c2-i5x5-k4-f3x3-bias", "conv2d-fp32-n2-c4-i3x3-k4-f3x3-bias"]
ONCE = {"fwd": 1, "bwd-data": 1, "bwd-weights": 1}


@pytest.mark.thorough
def test_a_model_from_its_recording_to_the_report(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    recorded = rocmprobe("shapes", "-o", "s.json", "--", sys.executable, "model.py", cwd=tmp_path)
    assert recorded.returncode == 0, recorded.stderr
    data = json.loads((tmp_path / "s.json").read_text())
    assert [each["counts"]["fwd"] for each in data["problems"]] == [8, 8, 2, 2]

    settings = ("--settings", "default,", "--only", "throughput")
    done = run(tmp_path / "out", "--device", "cpu", "--shapes", tmp_path / "s.json", *settings)
    results = done.results
    asked = [FIRST, SECOND, *LARGE]
    assert [each.problem for each in results.outcomes] == asked
    shapes = results.options["shapes"]
    assert [each["problem"] for each in shapes["problems"]] == asked
    assert shapes["problems"][1] == {"problem": SECOND, "counts": dict.fromkeys(ONCE, 8)}
    assert "Your model" in (tmp_path / "out" / "report.html").read_text("utf-8")

    expected = replace(results, recommendation=Recommendation("native", "", Configuration("default")))
    again = verification_options(RunOptions(), expected)
    assert (again.problems, again.shapes) == (tuple(asked), from_json(Shapes, shapes))
