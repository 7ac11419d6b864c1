"""Training from a DataLoader: with forked workers, and with spawned ones where those fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs import Run, machine_file, run

pytest.importorskip("torch")

CHECKS = ("--only", "data-loader", "--only", "data-loader-spawn", "--settings", "default")


def made(tmp_path: Path, *faults: Any) -> Run:
    machine = machine_file(tmp_path / "machine.toml", *faults)
    return run(tmp_path / "out", "--simulate", machine, *CHECKS)


def test_forked_workers_that_work_need_no_others(tmp_path: Path) -> None:
    outcomes = made(tmp_path).outcomes
    assert outcomes["cuda:0/default/data-loader/float32"].state == "pass"
    spawned = outcomes["cuda:0/default/data-loader-spawn/float32"]
    assert (spawned.state, spawned.evidence) == (
        "skipped", ("data-loader works here, so this test is not needed",)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("effect", "message"), [("raise", "initialization error"), ("hang", "DataLoader timed out")]
)
@pytest.mark.thorough
def test_workers_that_fail_after_a_fork_are_spawned(tmp_path: Path, effect: str, message: str) -> None:
    fault = {"library": "hip", "effect": effect, "forked": True, "message": "initialization error"}
    found = made(tmp_path, fault)
    forked = found.outcomes["cuda:0/default/data-loader/float32"]
    assert forked.state == "error", found.ended.stdout
    assert message in "\n".join(forked.evidence)
    assert found.states["cuda:0/default/data-loader-spawn/float32"] == "pass"
    (finding,) = [each for each in found.results.findings if each.id == "data-loader"]
    assert finding.title.endswith("fails after the GPU was used; it works with spawned workers")
    assert 'multiprocessing_context="spawn", persistent_workers=True' in finding.advice
    assert "tested and works" in finding.advice
