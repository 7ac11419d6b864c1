"""``rocmprobe run --verify``: the recommendation is asked again, alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from runs import SMALL, cli, machine_file, run

from rocmprobe.cli.run import _exit_code
from rocmprobe.model import exit_codes
from rocmprobe.model.results import SCHEMA_VERSION, Machine, Outcome, Results

PROBLEM = "conv2d-fp32-n1-c4-i8x8-k4-f3x3-p1"
MIOPEN_DEAD = {"library": "miopen", "effect": "raise", "message": "miopenStatusUnknownError"}


def test_verify_holds_until_the_machine_becomes_worse(tmp_path: Path) -> None:
    machine = tmp_path / "machine.toml"
    machine_file(machine, MIOPEN_DEAD)
    recommended = run(tmp_path / "out", "--simulate", machine, *SMALL)
    assert recommended.results.recommendation
    assert recommended.results.recommendation.verdict == "vendor-off"

    results = tmp_path / "out" / "results.json"
    narrow = ("--", "-k", "/convolution/ or /gemm/")
    same = run(tmp_path / "same", "--verify", results, *narrow).ended
    assert same.returncode == 0, same.stdout + same.stderr
    assert "vendor-off still works" in same.stdout

    machine_file(machine, MIOPEN_DEAD, {"library": "rocblas", "effect": "raise", "message": "it failed"})
    worse = run(tmp_path / "worse", "--verify", results, *narrow).ended
    assert worse.returncode == 1, worse.stdout + worse.stderr
    assert "vendor-off no longer works" in worse.stdout


@pytest.mark.thorough
def test_a_combined_setting_is_tested_below_convolution_too(tmp_path: Path) -> None:
    machine = machine_file(
        tmp_path / "machine.toml",
        {"library": "rocblas", "effect": "wrong", "unless": {"TORCH_BLAS_PREFER_HIPBLASLT": "0"}},
        {"library": "miopen", "effect": "wrong", "unless": {"MIOPEN_DEBUG_CONV_GEMM": "0"}},
    )
    checks = ("--only", "*/gemm/float32*", "--only", "convolution", "--only", "training-step")
    combined = "no-hipblaslt+no-gemm"
    made = run(tmp_path / "out", "--simulate", machine, *checks, "--settings", combined, "--problem", PROBLEM)
    assert made.states[f"cuda:0/{combined}/gemm/float32/x20"] == "pass"
    assert made.states[f"cuda:0/{combined}/training-step/float32"] == "pass"
    assert made.results.recommendation
    assert made.results.recommendation.configuration.setting == combined
    # The ladder found the setting, so no check requested it by name.
    path = tmp_path / "out" / "results.json"
    results = json.loads(path.read_text("utf-8"))
    for setting in results["settings"]:
        setting["by_name"] = setting["name"] == combined
    path.write_text(json.dumps(results), "utf-8")
    same = run(tmp_path / "same", "--verify", path).ended
    assert same.returncode == 0, same.stdout + same.stderr
    assert f"{combined} still works" in same.stdout


def test_a_layer_that_fails_beside_convolution_is_no_part_of_it(tmp_path: Path) -> None:
    """The recommendation says how to run the layer; what it recommends for convolution still holds."""
    lstm = {**MIOPEN_DEAD, "operator": "^lstm$"}
    machine = machine_file(tmp_path / "machine.toml", lstm, first_call=60, steady=60)
    only = ("--only", "convolution", "--only", "lstm", "--purpose", "inference")
    made = run(tmp_path / "out", "--simulate", machine, "--settings", "default,", *only)
    assert made.states["cuda:0/default/lstm/float32"] == "error"
    assert made.results.recommendation
    assert made.results.recommendation.verdict == "native"
    narrow = ("--", "-k", "/convolution/ or lstm")
    again = run(tmp_path / "again", "--verify", made.folder / "results.json", *narrow).ended
    assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.thorough
def test_a_batch_norm_that_begins_to_fail_is_a_part_of_it(tmp_path: Path) -> None:
    """Batch norm was tested and the training step was not: the recommendation for training rests on it."""
    machine = machine_file(tmp_path / "machine.toml", first_call=60, steady=60)
    only = ("--only", "*/convolution/*", "--only", "batch-norm", "--problem", PROBLEM)
    settings = ("--settings", "default,batch-norm-pytorch,vendor-off")
    made = run(tmp_path / "out", "--simulate", machine, *settings, *only)
    assert made.results.recommendation
    assert made.results.recommendation.configuration.setting == "default"

    machine_file(machine, {**MIOPEN_DEAD, "operator": "^native_batch_norm"}, first_call=60, steady=60)
    worse = run(tmp_path / "worse", "--verify", made.folder / "results.json").ended
    assert worse.returncode == 1, worse.stdout + worse.stderr
    assert "default no longer works: cuda:0/default/batch-norm/float32" in worse.stdout

    other = run(tmp_path / "other", "--simulate", machine, *settings, *only)
    assert other.results.recommendation
    assert other.results.recommendation.configuration.setting == "batch-norm-pytorch"
    again = run(tmp_path / "again", "--verify", other.folder / "results.json").ended
    assert again.returncode == 0, again.stdout + again.stderr
    assert "batch-norm-pytorch still works: " in again.stdout


def test_a_gpu_that_no_longer_answers_ends_it_as_it_ends_every_run() -> None:
    outcome = Outcome("a", "cuda:0", "default", "copy", "copy", "blocked", failure="gpu-wedged")
    results = Results(
        SCHEMA_VERSION, "0", "2026-01-01T00:00:00Z", None, True, None, {}, Machine(), (), (), (), (outcome,)
    )
    assert _exit_code(results, "findings", holds=False) == exit_codes.WEDGED
    answering = replace(results, outcomes=())
    assert _exit_code(answering, "findings", holds=False) == exit_codes.FINDINGS
    assert _exit_code(answering, "findings", holds=True) == exit_codes.OK


def test_an_override_that_is_gone_or_new_is_refused(tmp_path: Path) -> None:
    made = run(tmp_path / "out", "--simulate", machine_file(tmp_path / "machine.toml"), *SMALL)
    real = json.loads((made.folder / "results.json").read_text("utf-8"))
    real["options"]["simulate"] = None
    set_then = {"HSA_OVERRIDE_GFX_VERSION": {"value": "10.3.0", "source": "environment"}}
    for variables, now, told in (
        (
            set_then,
            {},
            "made with HSA_OVERRIDE_GFX_VERSION=10.3.0, but now there is no HSA_OVERRIDE_GFX_VERSION",
        ),
        ({}, {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}, "but now there is HSA_OVERRIDE_GFX_VERSION=10.3.0"),
    ):
        real["machine"]["variables"] = variables
        (tmp_path / "results.json").write_text(json.dumps(real), "utf-8")
        ended = cli("run", "--verify", tmp_path / "results.json", env=now)
        assert ended.returncode == exit_codes.USAGE
        assert told in ended.stderr
        assert len(ended.stderr.splitlines()) == 1
