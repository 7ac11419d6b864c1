"""Outcomes of simulated machines that benchmarks compute without trials."""

import sys
from pathlib import Path

import pytest

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine import run
from rocmprobe.engine.session import Session
from rocmprobe.engine.setup import setup_of
from rocmprobe.model.options import RunOptions

PROBLEM = "conv2d-fp32-n1-c2-i6x6-k3-f3x3-p1"


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """Return a function that gives the oracle's state of a convolution, on a machine with one fault."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(Path(__file__).parent.parent / "benchmarks"), *sys.path])
        patch.setenv("ROCMPROBE_BYPASS_MEASURE", "0")
        import cures
        import oracle

        folder = tmp_path_factory.mktemp("oracle")
        fault = {"library": "miopen", "effect": "signal", "chance": 0.05, "directions": ["fwd"]}
        fault["unless"] = {"MIOPEN_DEBUG_CONV_GEMM": "0"}
        (folder / "machine.toml").write_text(cures.toml_rows(cures.CHIPS[1], "", "", fault), "utf-8")
        run.begin(RunOptions(simulate=str(folder / "machine.toml")), folder / "run")
        journal = oracle.MemoryJournal(folder / "run")
        session = Session(setup_of(journal.run, folder / "run"), journal)
        with oracle.recording(oracle.Recordings(folder / "recordings"), seed=1):
            yield lambda setting, direction: oracle.worst_state(
                session, Case("cuda:0", setting, "convolution", "float32", PROBLEM, direction)
            )


@pytest.mark.parametrize(
    ("setting", "direction", "state"),
    [
        ("default", "fwd", "crash"),
        ("default", "bwd-data", "pass"),
        ("no-gemm", "fwd", "pass"),
        ("vendor-off", "fwd", "pass"),
        ("bypass", "fwd", "pass"),
    ],
)
def test_fault_happens_where_a_trial_would_have_it(states, setting, direction, state):
    assert states(setting, direction) == state
