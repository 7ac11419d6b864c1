"""The check soak in a run of simulated machines: a flipped bit, a crash, a lost GPU, an interrupt."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from runs import Started, cli, journal, kinds, machine_file

from rocmprobe.model.exit_codes import FINDINGS, INTERRUPTED, OK
from rocmprobe.model.results import Outcome
from rocmprobe.model.results_file import read_results

pytest.importorskip("torch")

FLIP = {"library": "miopen", "effect": "flip", "directions": ["bwd-weights"], "after": 22}
#: Only what the vendor library computes.
SOAK = ("--only", "soak", "--skip", "*/vendor-off/*", "--skip", "*/bypass/*")


def soak(
    folder: Path, *faults: Mapping[str, Any], budgets: Mapping[str, float] | None = None
) -> subprocess.CompletedProcess[str]:
    machine = machine_file(folder / "machine.toml", *faults, **(budgets or {}))
    return cli("run", "--simulate", machine, "--out", folder / "run", *SOAK, "--minutes", 2)


def outcome_in(folder: Path) -> Outcome:
    [outcome] = read_results(folder / "run" / "results.json").outcomes
    return outcome


def test_one_flipped_bit_is_found(tmp_path: Path) -> None:
    ended = soak(tmp_path, FLIP)
    assert ended.returncode == FINDINGS, ended.stdout + ended.stderr
    outcome = outcome_in(tmp_path)
    assert (outcome.state, outcome.setting, outcome.numerics["mismatches"]) == ("wrong", "default", 1)
    assert "1 of 24 steps gave another result; the first was step " in outcome.evidence[0]
    assert "1 value (1 bit) of the gradient of layers." in outcome.evidence[0]
    results = read_results(tmp_path / "run" / "results.json")
    [finding] = [each for each in results.findings if each.id == "soak"]
    assert (finding.severity, finding.cause, finding.layer) == ("warning", "hw-power-or-fault", "hardware")
    assert results.recommendation is not None
    assert results.recommendation.verdict == "not-judged"


@pytest.mark.thorough
class TestEnds:
    def test_a_crash_is_not_retried_and_the_device_is_tested(self, tmp_path: Path) -> None:
        assert soak(tmp_path, {"library": "miopen", "effect": "signal", "after": 22}).returncode == FINDINGS
        outcome = outcome_in(tmp_path)
        assert (outcome.state, len(outcome.attempts)) == ("crash", 1)
        assert outcome.evidence[0].startswith("the process ended with SIGSEGV in phase steady after ")
        trials = read_results(tmp_path / "run" / "results.json").trials
        assert len(trials) == 2
        assert "wedged" not in kinds(tmp_path / "run")

    def test_a_gpu_that_is_gone_is_noticed(self, tmp_path: Path) -> None:
        gone = (
            {"library": "miopen", "effect": "hang", "after": 22},
            # Only the small test for an answer has a ReLU.
            {"library": "hip", "effect": "hang", "operator": "^relu$", "settings": ["default"]},
        )
        ended = soak(tmp_path, *gone, budgets={"first_call": 5, "steady": 3, "start": 60})
        assert ended.returncode == FINDINGS
        assert outcome_in(tmp_path).state == "hang"
        assert "wedged" in kinds(tmp_path / "run")

    def test_an_interrupted_soak_is_aborted(self, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        # As long as the interrupt can take.
        minutes = ("--minutes", 5000)
        machine = machine_file(tmp_path / "machine.toml")
        started = Started("run", "--simulate", machine, "--out", folder, *SOAK, *minutes)
        assert started.reaches(lambda: any(each["record"] == "intent" for each in journal(folder)))
        started.interrupt()
        assert started.process.returncode == INTERRUPTED
        resumed = cli("run", "--resume", folder)
        assert resumed.returncode == OK, resumed.stdout
        assert (outcome_in(tmp_path).state, outcome_in(tmp_path).failure) == ("aborted", "run-died")
