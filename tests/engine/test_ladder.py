"""The lowest rung: what it forbids, and when the device itself is given up."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from runs import PROBLEM, Run, journal, machine_file, resume, run
from tiers import OLD_TORCH

from rocmprobe.model.results_file import read_results
from rocmprobe.report.write import recorded

RUNGS = tuple(f"--only={check}" for check in ("copy", "elementwise", "gemm", "im2col", "convolution"))


def with_dead_kernels(folder: Path, **fault: str) -> Run:
    budget = 2 if fault["effect"] == "hang" else 30
    machine = machine_file(
        folder / "machine.toml", {"library": "hip", **fault}, first_call=budget, steady=budget
    )
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


@pytest.fixture(scope="module")
def wedged(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return with_dead_kernels(tmp_path_factory.mktemp("wedged"), effect="hang")


def test_a_device_that_no_longer_answers_stops_the_run_with_exit_code_4(wedged: Run) -> None:
    assert wedged.ended.returncode == 4
    first, *others = wedged.outcomes.values()
    assert (first.check, first.state, first.failure) == ("copy", "hang", "timeout")
    on_device = [outcome for outcome in others if outcome.setting != "cpu"]
    assert {(outcome.state, outcome.failure) for outcome in on_device} == {("blocked", "gpu-wedged")}
    assert wedged.of("cpu").state == "pass"
    assert [record["device"] for record in journal(wedged.folder) if record["record"] == "wedged"] == [
        "cuda:0"
    ]


def test_the_results_that_a_run_shows_are_those_that_it_has_written(wedged: Run) -> None:
    assert recorded(wedged.folder) == read_results(wedged.folder / "results.json")


def test_what_was_blocked_is_asked_again_when_the_run_is_taken_up(wedged: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(wedged.folder, tmp_path / "out")
    path = folder / "journal.jsonl"
    lines = path.read_text().splitlines()
    # As if the machine had been mended meanwhile: the faults are gone, the lowest rung is asked again.
    first = json.loads(lines[0])
    first["simulation"]["faults"] = []
    kept = [line for line in lines[1:] if '"outcome"' not in line or '"blocked"' in line]
    path.write_text("\n".join([json.dumps(first), *kept]) + "\n")
    done = resume(folder, "--retry-aborted")
    assert done.ended.returncode in (0, 1), done.ended.stderr
    assert set(done.states.values()) - ({"n/a"} if OLD_TORCH else set()) == {"pass"}


@pytest.mark.thorough
def test_after_some_hangs_or_crashes_of_a_setting_the_rest_of_it_is_not_asked(tmp_path: Path) -> None:
    texts = [f"conv2d-fp32-n1-c{channels}-i8x8-k4-f3x3" for channels in range(1, 6)]
    machine = machine_file(
        tmp_path / "machine.toml",
        {"library": "miopen", "effect": "hang", "settings": ["default"]},
        {"library": "miopen", "effect": "signal", "settings": ["immediate"]},
        first_call=1, crashes=3,
    )  # fmt: skip
    asked = [argument for text in texts for argument in ("--problem", text)]
    found = run(
        tmp_path / "out", "--simulate", machine, "--only", "convolution", "--purpose", "inference",
        "--settings", "default,immediate,vendor-off", *asked,
    )  # fmt: skip
    states = {
        name: [found.of(name, text).state for text in texts]
        for name in ("default", "immediate", "vendor-off")
    }
    assert states["default"] == ["hang", "hang", "blocked", "blocked", "blocked"]
    assert states["immediate"] == ["crash", "crash", "crash", "blocked", "blocked"]
    assert states["vendor-off"] == ["pass"] * 5
    # The second hang is believed at once.
    assert [len(found.of("default", text).attempts) for text in texts] == [2, 1, 0, 0, 0]
    assert found.of("default", texts[2]).failure == "many-hangs"
    assert found.of("immediate", texts[3]).failure == "many-crashes"
    assert "3 tests under immediate ended in a crash" in found.of("immediate", texts[4]).evidence[0]


@pytest.mark.parametrize("poisons", [False, True])
def test_a_status_of_the_library_that_leaves_the_device_unusable_costs_its_own_case_alone(
    tmp_path: Path, poisons: bool
) -> None:
    broken, fine = (f"conv2d-fp32-n1-c{channels}-i8x8-k4-f3x3" for channels in (1, 2))
    fault = {"library": "miopen", "problem": broken, "message": "miopenStatusInternalError"}
    machine = machine_file(tmp_path / "machine.toml", {**fault, "effect": "raise", "poisons": poisons})
    found = run(
        tmp_path / "out", "--simulate", machine, "--only", "convolution", "--purpose", "inference",
        "--settings", "default,", "--problem", broken, "--problem", fine,
    )  # fmt: skip
    failed = found.of("default", broken)
    assert (failed.state, failed.failure) == ("error", "miopen-status")
    # In place where the device still answers, else each time in a fresh child.
    assert len({attempt.trial for attempt in failed.attempts}) == (3 if poisons else 1)
    assert len(failed.attempts) == 3
    assert found.of("default", fine).state == "pass"
