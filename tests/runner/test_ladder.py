"""The lowest rung: what it forbids, and when the device itself is given up."""

from __future__ import annotations

from pathlib import Path

from runs import PROBLEM, Run, journal, machine_file, run

RUNGS = tuple(f"--only={check}" for check in ("copy", "elementwise", "gemm", "im2col", "convolution"))


def with_dead_kernels(folder: Path, message: str) -> Run:
    machine = machine_file(folder / "machine.toml", {"library": "hip", "effect": "raise", "message": message})
    return run(
        folder / "out", "--simulate", machine, "--settings", "bypass,cpu", *RUNGS, "--problem", PROBLEM,
        "--purpose", "inference",
    )  # fmt: skip


def test_a_failed_copy_blocks_everything_above_it_with_the_reason(tmp_path: Path) -> None:
    broken = with_dead_kernels(tmp_path, "no kernel image is available")
    copy = "cuda:0/torch/default/copy/float32"
    assert broken.ended.returncode == 1
    assert broken.states.pop(copy) == "error"
    for outcome in broken.outcomes.values():
        if outcome.setting != "cpu" and outcome.id != copy:
            assert outcome.state == "blocked"
            assert outcome.evidence == (f"{copy} is error: RuntimeError: no kernel image is available",)
    assert broken.of("cpu").state == "pass"


def test_a_device_that_no_longer_answers_stops_the_run_with_exit_code_4(tmp_path: Path) -> None:
    broken = with_dead_kernels(tmp_path, "HIP error: unspecified launch failure")
    assert broken.ended.returncode == 4
    first, *others = broken.outcomes.values()
    assert (first.check, first.state, first.cause) == ("copy", "error", "device-error")
    assert {(outcome.state, outcome.cause) for outcome in others} == {("blocked", "gpu-wedged")}
    assert [record["device"] for record in journal(broken.folder) if record["record"] == "wedged"] == [
        "cuda:0"
    ]
