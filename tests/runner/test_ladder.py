"""The lowest rung: what it forbids, and when the device itself is given up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import PROBLEM, Run, journal, machine_file, rocmprobe, run

from rocmprobe.model import read_results

RUNGS = tuple(f"--only={check}" for check in ("copy", "elementwise", "gemm", "im2col", "convolution"))


def with_dead_kernels(folder: Path, **fault: str) -> Run:
    machine = machine_file(folder / "machine.toml", {"library": "hip", **fault}, first_call=2, steady=2)
    return run(
        folder / "out", "--simulate", machine, "--settings", "bypass,cpu", *RUNGS, "--problem", PROBLEM,
        "--purpose", "inference",
    )  # fmt: skip


@pytest.mark.parametrize("message", ["no kernel image is available", "HIP error: invalid device function"])
def test_a_failed_copy_blocks_everything_above_it_with_the_reason(tmp_path: Path, message: str) -> None:
    broken = with_dead_kernels(tmp_path, effect="raise", message=message)
    copy = "cuda:0/torch/default/copy/float32"
    assert broken.ended.returncode == 1
    assert broken.states.pop(copy) == "error"
    for outcome in broken.outcomes.values():
        if outcome.setting != "cpu" and outcome.id != copy:
            assert outcome.state == "blocked"
            assert outcome.evidence == (f"{copy} is error: RuntimeError: {message}",)
    assert broken.of("cpu").state == "pass"


def test_a_device_that_no_longer_answers_stops_the_run_with_exit_code_4(tmp_path: Path) -> None:
    broken = with_dead_kernels(tmp_path, effect="hang")
    assert broken.ended.returncode == 4
    first, *others = broken.outcomes.values()
    assert (first.check, first.state, first.cause) == ("copy", "hang", "timeout")
    on_device = [outcome for outcome in others if outcome.setting != "cpu"]
    assert {(outcome.state, outcome.cause) for outcome in on_device} == {("blocked", "gpu-wedged")}
    assert broken.of("cpu").state == "pass"
    assert [record["device"] for record in journal(broken.folder) if record["record"] == "wedged"] == [
        "cuda:0"
    ]


def test_what_was_blocked_is_asked_again_when_the_run_is_taken_up(tmp_path: Path) -> None:
    broken = with_dead_kernels(tmp_path, effect="hang")
    path = broken.folder / "journal.jsonl"
    lines = path.read_text().splitlines()
    # As if the machine had been mended meanwhile: the faults are gone, the lowest rung is asked again.
    first = json.loads(lines[0])
    first["simulation"]["faults"] = []
    kept = [line for line in lines[1:] if '"outcome"' not in line or '"blocked"' in line]
    path.write_text("\n".join([json.dumps(first), *kept]) + "\n")
    done = rocmprobe("run", "--resume", str(broken.folder), "--retry-aborted")
    assert done.returncode in (0, 1), done.stderr
    states = {outcome.state for outcome in read_results(broken.folder / "results.json").outcomes}
    assert states == {"pass"}
