"""A fault meets what would enter its library on a real machine, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import PROBLEM, SMALL, Run, machine_file, run

FP64 = "conv2d-fp64-n1-c4-i8x8-k4-f3x3"
GROUPED_AND_DILATED = "conv2d-fp32-n1-c4-i8x8-k4-f3x3-d2-g2"
GROUPED = "conv2d-fp32-n1-c4-i8x8-k4-f3x3-g2"
#: Large enough that PyTorch gives it to oneDNN.
LARGE = "conv2d-fp32-n2-c16-i28x28-k32-f3x3-p1"
DIRECTIONS = ("fwd", "bwd-data", "bwd-weights")
SETTINGS = "vendor-off,bypass"


def faulty(folder: Path, library: str, *arguments: str) -> Run:
    machine = machine_file(
        folder / "machine.toml", {"library": library, "effect": "raise", "message": "it failed"}
    )
    return run(folder / "out", "--simulate", machine, "--settings", SETTINGS, *arguments)


@pytest.fixture(scope="module")
def miopen(tmp_path_factory: pytest.TempPathFactory) -> Run:
    problems = [f"--problem={text}" for text in (PROBLEM, FP64, GROUPED_AND_DILATED, GROUPED)]
    return faulty(tmp_path_factory.mktemp("miopen"), "miopen", "--only", "convolution", *problems)


def test_a_miopen_fault_meets_what_enters_miopen(miopen: Run) -> None:
    states = {miopen.of("default", text, way).state for text in (PROBLEM, GROUPED) for way in DIRECTIONS}
    assert states == {"error"}


def test_a_miopen_fault_never_meets_what_pytorch_keeps_from_miopen(miopen: Run) -> None:
    texts = (FP64, GROUPED_AND_DILATED)
    assert {miopen.of("default", text, way).state for text in texts for way in DIRECTIONS} == {"pass"}


def test_a_miopen_fault_never_meets_vendor_off_or_the_bypass(miopen: Run) -> None:
    others = [outcome for outcome in miopen.outcomes.values() if outcome.setting != "default"]
    assert {outcome.setting for outcome in others} == set(SETTINGS.split(","))
    assert {outcome.state for outcome in others} == {"pass"}


def test_a_rocblas_fault_meets_vendor_off_and_the_bypass_too(tmp_path: Path) -> None:
    broken = faulty(tmp_path, "rocblas", "--only", "convolution", "--problem", PROBLEM)
    states: dict[str, set[str]] = {outcome.setting: set() for outcome in broken.outcomes.values()}
    for outcome in broken.outcomes.values():
        states[outcome.setting].add(outcome.state)
    assert states == {"default": {"pass"}, **{name: {"error"} for name in SETTINGS.split(",")}}


def test_the_control_in_fp64_meets_no_fault_of_miopen_but_those_of_rocblas(tmp_path: Path) -> None:
    for library, expected in (("miopen", "pass"), ("rocblas", "error")):
        (tmp_path / library).mkdir()
        machine = machine_file(
            tmp_path / library / "machine.toml",
            {"library": library, "effect": "raise", "message": "it failed"},
        )
        arguments = ("--only", "convolution", "--problem", PROBLEM, "--settings", "float64")
        broken = run(tmp_path / library, "--simulate", machine, *arguments)
        assert broken.of("float64", FP64).state == expected


def test_the_evidence_of_a_failure_holds_miopen_s_own_command_line(tmp_path: Path) -> None:
    command = "./bin/MIOpenDriver conv -n 1 -c 4 -H 8 -W 8 -k 4 -y 3 -x 3 -p 0 -q 0 -F 1 -t 1"
    fault = {
        "library": "miopen", "effect": "raise", "message": "miopenStatusUnknownError",
        "stderr": {"fwd": f"MIOpen(HIP): Command [LogCmdFindConvolution] {command}"},
    }  # fmt: skip
    machine = machine_file(tmp_path / "machine.toml", fault)
    broken = run(tmp_path / "out", "--simulate", machine, *SMALL)
    assert command.partition("./bin/")[2] in broken.of("default").evidence


def test_gemm_blocks_what_stands_on_it(tmp_path: Path) -> None:
    broken = faulty(tmp_path, "rocblas", "--only", "gemm", "--only", "convolution", "--problem", PROBLEM)
    gemm = "cuda:0/default/gemm/float32"
    assert broken.states[gemm] == "error"
    assert broken.of("default").state == "pass"
    for setting in SETTINGS.split(","):
        outcome = broken.of(setting)
        assert (outcome.state, outcome.failure) == ("blocked", "rung:gemm")
        assert outcome.evidence[0] == f"{gemm} is error: RuntimeError: it failed"
        assert not outcome.trial


def test_the_cpu_of_a_gpu_run_names_its_own_library(tmp_path: Path) -> None:
    machine = machine_file(tmp_path / "machine.toml")
    done = run(
        tmp_path / "out", "--simulate", machine, "--only", "*/cpu/convolution/*", "--settings", "cpu",
        "--problem", LARGE, "--purpose", "inference",
    )  # fmt: skip
    assert done.of("cpu", LARGE).solver is not None
    assert done.of("cpu", LARGE).algorithm in ("Direct", "GEMM", "Winograd")


@pytest.mark.thorough
def test_a_fault_of_one_call_in_five_at_a_large_size_is_found(tmp_path: Path) -> None:
    fault = {"library": "miopen", "effect": "wrong", "chance": 0.2, "problem": "-i224x"}
    machine = machine_file(tmp_path / "machine.toml", fault)
    found = run(tmp_path / "out", "--simulate", machine, "--only", "cuda:0/default/convolution-at-size/*")
    failed = [outcome.problem for outcome in found.outcomes.values() if outcome.fails]
    assert failed
    assert all("-i224x" in str(problem) for problem in failed)
