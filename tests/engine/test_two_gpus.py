"""Several GPUs: by default one process asks each, and never two the same."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path

import pytest
from runs import PROBLEM, Run, kinds, machine_file, run, spans

from rocmprobe.engine.run import workers

GPU = """order = 1
index = 1
[[gpus]]
name = "Radeon of the tests, the other one"
vendor = "amd"
native_isa = "gfx1010"
effective_isa = "gfx1010"
apu = true
order = 0
index = 0
[facts]
"""


def asked(folder: Path, *arguments: str) -> Run:
    machine = machine_file(folder / "machine.toml")
    machine.write_text(machine.read_text("utf-8").replace("[facts]", GPU), "utf-8")
    return run(
        folder / "out", "--simulate", machine, "--device", "all", "--only", "*/copy/float32",
        "--only", "convolution", "--settings", "vendor-off,bypass", "--problem", PROBLEM, *arguments,
    )  # fmt: skip


@pytest.mark.thorough
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: one process asks both GPUs")
def test_each_gpu_is_asked_by_one_process_and_both_at_the_same_time(tmp_path: Path) -> None:
    found = asked(tmp_path)
    assert set(found.states.values()) == {"pass"}
    assert workers(found.folder) == 2
    first, second = (spans(found.folder, device=f"cuda:{number}") for number in range(2))
    assert len(first) == len(second) == 10
    for one in (first, second):
        assert not any(a < d and c < b for (a, b), (c, d) in combinations(one, 2))
    whole = [(min(a for a, _ in one), max(b for _, b in one)) for one in (first, second)]
    assert whole[0][0] < whole[1][1]
    assert whole[1][0] < whole[0][1]
    # The numbers follow the runtime's order, and the recommendation is about the card.
    found_for = found.results.recommendation.devices
    assert {name: (answer.gpu, answer.in_processor) for name, answer in found_for.items()} == {
        "cuda:1": ("Radeon of the tests", False),
        "cuda:0": ("Radeon of the tests, the other one", True),
    }
    assert list(found_for) == ["cuda:1", "cuda:0"]
    assert found.results.findings[0].id == "integrated-gpu"
    # As many children as settings, whatever asked: no trial is paid twice.
    assert sorted(trial.id.partition("#")[0] for trial in found.results.trials) == sorted(
        f"cuda:{number}/{setting}" for number in range(2) for setting in ("default", "vendor-off", "bypass")
    )


@pytest.mark.thorough
def test_each_process_climbs_the_ladder_of_its_gpu(tmp_path: Path) -> None:
    fault = {"library": "rocblas", "effect": "wrong", "unless": {"TORCH_BLAS_PREFER_HIPBLASLT": "0"}}
    machine = machine_file(tmp_path / "machine.toml", fault, gpus=2)
    found = run(
        tmp_path / "out", "--simulate", machine, "--device", "all", "-n", "2", "--only", "*/gemm/float32*"
    )
    assert workers(found.folder) == 2
    assert "answer" in kinds(found.folder)
    for device in ("cuda:0", "cuda:1"):
        first, *later = (name for name in found.states if name.startswith(device))
        assert (first, found.states[first]) == (f"{device}/default/gemm/float32/x20", "wrong")
        cured = f"{device}/no-hipblaslt/gemm/float32"
        assert (found.states[f"{cured}/x20"], found.states[cured]) == ("pass", "pass")
        # Without the cure, the case does not run again.
        assert later[-1] == f"{device}/default/gemm/float32"
        assert found.states[later[-1]] == "skipped"
    assert not found.results.partial


def test_one_device_has_one_process(tmp_path: Path) -> None:
    found = run(tmp_path / "out", "--device", "cpu", "--only", "copy", "-n", "3")
    assert workers(found.folder) == 1
    assert "-n 3 is more than the number of devices: one process tests each device" in found.ended.stdout
