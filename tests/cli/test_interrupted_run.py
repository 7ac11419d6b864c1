"""Ctrl-C: the children end, and what was learned is written and marked partial."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import SMALL, Background, journal, machine_file, wait_until

from rocmprobe.model import read_results


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_ends_the_children_and_writes_a_partial_report(tmp_path: Path, workers: int) -> None:
    machine = machine_file(tmp_path / "machine.toml", {"library": "miopen", "effect": "hang"})
    folder = tmp_path / "out"
    arguments = [argument.replace("convolution", "*fwd") for argument in SMALL]
    stuck = Background(folder, "--simulate", machine, "--only", "copy", *arguments, "-n", workers)
    assert stuck.reaches(
        lambda: any(r["record"] == "intent" and "/default/conv" in r["case"] for r in journal(folder))
    )
    printed = stuck.interrupt()
    assert stuck.process.returncode == 130
    assert "Traceback" not in printed
    assert "Partial run" in printed
    assert wait_until(lambda: not stuck.alive(), 5), "processes outlive the run"
    results = read_results(folder / "results.json")
    assert results.partial
    assert [outcome.state for outcome in results.outcomes if outcome.check == "copy"] == ["pass"]
    assert "Partial run" in (folder / "report.html").read_text("utf-8")
