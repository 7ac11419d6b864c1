"""Programs of a test, and the results and commands that they are run with."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sample
from runs import cli, rocmprobe

from rocmprobe.model.results import Configuration, Results, Setting
from rocmprobe.model.results_file import write_results

#: A convolution and its gradients, with what a program can see of the conditions it runs under.
CONVOLVES = """
import torch
output = torch.nn.Conv2d(3, 4, 3)(torch.randn(2, 3, 8, 8, requires_grad=True))
output.sum().backward()
"""


def program(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def recommending(setting: Setting, device: str = "cpu", env: Mapping[str, str] | None = None) -> Results:
    """Results of a real machine that recommend ``setting``."""
    results = sample.rdna1()
    assert results.recommendation is not None
    recommendation = dataclasses.replace(
        results.recommendation, configuration=Configuration(setting.name, env or setting.env)
    )
    outcomes = tuple(dataclasses.replace(outcome, device=device) for outcome in results.outcomes)
    return dataclasses.replace(
        results, simulated=None, settings=(setting,), outcomes=outcomes, recommendation=recommendation
    )


def profile(folder: Path, results: Results) -> Path:
    path = folder / "results.json"
    write_results(results, path)
    return path


def executed(folder: Path, *arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    """``rocmprobe exec`` in ``folder``, where there are no results."""
    return rocmprobe("exec", *arguments, cwd=folder, env=environ)


def refused(folder: Path, *arguments: object, **environ: str) -> str:
    """Run ``rocmprobe exec`` in ``folder``, which must start no program, and return its one line."""
    done = cli("exec", *arguments, cwd=folder, env=environ)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    return done.stderr


def told(path: Path) -> list[dict[str, Any]]:
    """What processes appended to the status file; none where there is no file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
