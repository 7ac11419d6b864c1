"""Runs with the checks without torch, against the stand-in libraries.

Nothing detects a GPU here, so a run is told of one.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from runs import CHECKOUT, Run, environment, run
from stand_in_libraries import FILES, build, python_without_torch

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.budgets import Budgets
from rocmprobe.engine.journal import Journal
from rocmprobe.engine.setup import Setup
from rocmprobe.engine.targets import Device
from rocmprobe.engine.trial import Trials
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.options import RunOptions

PROBLEM = "conv2d-fp32-n1-c4-i8x8-k4-f3x3-p1"
DIRECTIONS = ("fwd", "bwd-data", "bwd-weights")
PROGRAM = """
import sys
from rocmprobe.cli import main
from rocmprobe.engine import run
from rocmprobe.model.results import Fact, Gpu, Machine
isa = Fact("gfx1030", "test")
card = Gpu(isa, isa, Fact("Radeon", "test"), vendor=Fact("amd", "test"), index=Fact(0, "test"))
found = run.detect()
run.detect = lambda: Machine((card,), found.facts, found.variables)
sys.argv[0] = "rocmprobe"
main()
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("libraries"))


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    return python_without_torch(tmp_path_factory.mktemp("python"))


@pytest.fixture
def asked(tmp_path, libraries, python):
    def ask(*arguments, python=python, **variables):
        command = [python, "-c", PROGRAM, "run", "--out", tmp_path / "out", "--problem", PROBLEM, *arguments]
        env = environment({"PYTHONPATH": str(CHECKOUT), "LD_LIBRARY_PATH": str(libraries), **variables})
        ended = subprocess.run(
            [*map(str, command)], env=env, capture_output=True, text=True, timeout=300, check=False
        )
        return Run(tmp_path / "out", ended)

    return ask


def case(check, what, direction=""):
    return f"cuda:0/default/{check}/{what}{direction and f'/{direction}'}"


def test_without_torch_a_run_calls_the_libraries_before_it_says_how_to_install_one(asked, libraries):
    done = asked()
    assert done.ended.returncode == 3, done.ended.stderr
    assert done.states == {
        **{case("rocblas-direct", dtype): "pass" for dtype in ("float32", "float16", "bfloat16", "float64")},
        **{case("miopen-direct", PROBLEM, direction): "pass" for direction in DIRECTIONS},
    }
    recommendation = done.results.recommendation
    assert (recommendation.verdict, recommendation.configuration.command) == (
        "gpu-not-tested", "rocmprobe install",
    )  # fmt: skip
    assert recommendation.sentence == (
        "Your Radeon was not tested with PyTorch: this Python has no torch. "
        "Without PyTorch, rocBLAS and MIOpen work."
    )
    assert "rocmprobe install" in done.ended.stdout
    [trial] = done.results.trials
    assert (trial.start_method, trial.exit, trial.exit_crash) == ("spawn", "0", False)
    assert trial.mapped["libMIOpen"] == (str((libraries / FILES["miopen"]).resolve()),)


@pytest.mark.thorough
def test_the_fault_of_miopen_is_named_with_the_command_that_shows_it(asked):
    done = asked(LC_STAND_IN_FAULTS="miopenConvolutionForward=abort")
    assert done.ended.returncode == 3, done.ended.stderr
    outcome = done.outcomes[case("miopen-direct", PROBLEM, "fwd")]
    assert (outcome.state, outcome.failure, len(outcome.attempts)) == ("crash", "SIGABRT", 3)
    assert outcome.evidence[0].endswith("in phase first-call, in miopenConvolutionForward")
    assert done.states[case("miopen-direct", PROBLEM, "bwd-data")] == "pass"
    [finding] = done.results.findings
    assert (finding.id, finding.severity, finding.title) == (
        "miopen-direct", "error", "MIOpen fails without PyTorch: MIOpen's own fault",
    )  # fmt: skip
    command = "MIOpenDriver conv -n 1 -c 4 -H 8 -W 8 -k 4 -y 3 -x 3 -F 1"
    assert finding.evidence[-1] == command
    assert done.results.recommendation.sentence.endswith("rocBLAS works and MIOpen fails.")


@pytest.mark.thorough
def test_a_library_that_crashes_leaves_the_checks_of_the_other(asked):
    done = asked("--purpose", "inference", LC_STAND_IN_FAULTS="rocblas_create_handle=segv")
    states = {name: state for name, state in done.states.items() if "rocblas" in name}
    assert set(states.values()) == {"crash"}
    assert done.states[case("miopen-direct", PROBLEM, "fwd")] == "pass"


def test_a_simulated_machine_and_a_cpu_have_no_libraries_to_call(tmp_path):
    only = ("--only", "copy", "--only", "*-direct", "--settings", "default,", "--problem", PROBLEM)
    done = run(tmp_path / "simulated", "--simulate", "healthy-gfx1100", "--only", "*/miopen-direct/*", *only)
    states = {name: state for name, state in done.states.items() if "direct" in name}
    assert set(states.values()) == {"n/a"}
    done = run(tmp_path / "cpu", "--device", "cpu", *only)
    assert not [name for name in done.states if "direct" in name]


@pytest.mark.thorough
def test_a_hang_names_its_call_and_counts_for_no_check_of_pytorch(libraries, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))
    monkeypatch.setenv("LC_STAND_IN_FAULTS", "miopenCreate=hang")
    budgets = Budgets(start=60, first_call=3, steady=60, teardown=10, measure=0.1, tries=1)
    target, journal = Device("cuda:0", "miopen", torch=False), Journal(tmp_path, True)
    setup = Setup(RunOptions(), (target,), {"cuda:0": settings_for("miopen")}, budgets)
    trials = Trials(setup, journal)
    direct = Case("cuda:0", "default", "miopen-direct", "float32", PROBLEM, "fwd")
    try:
        journal.outcome(trials.outcome(direct))
    finally:
        trials.close(at_once=True)
    outcome = journal.find(direct.id)
    assert (outcome.state, outcome.activity) == ("hang", "idle")
    assert outcome.evidence[0] == "no answer in 3 s in phase first-call, in miopenCreate, idle"
    assert journal.count("hang", direct) == 1
    assert journal.count("hang", replace(direct, check="convolution")) == 0
