"""`rocmprobe soak` on simulated machines: a flipped bit, heat, a reset, a killed process, an interrupt."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from runs import Started, cli, journal, machine_file, rocmprobe, wait_until

from rocmprobe.model.exit_codes import FINDINGS, INTERRUPTED, OK, USAGE, WEDGED
from rocmprobe.model.results import Outcome
from rocmprobe.model.results_file import read_results

pytest.importorskip("torch")

FLIP = {"library": "miopen", "effect": "flip", "directions": ["bwd-weights"], "after": 22}
RESET = {
    "library": "miopen", "effect": "raise", "message": "HIP error: unspecified launch failure",
    "poisons": True, "after": 22, "kernel": [
        "amdgpu 0000:0b:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3",
        "amdgpu 0000:0b:00.0: amdgpu: GPU reset begin!",
        "amdgpu 0000:0b:00.0: amdgpu: GPU reset(1) succeeded!",
    ],
}  # fmt: skip
TELEMETRY = """\
[[telemetry]]
device = "0000:0b:00.0"
name = "Radeon of the tests"
seconds = [0, 30, 60, 75]
[telemetry.limits]
temperature_junction_c = 110
[telemetry.values]
temperature_junction_c = [44, 70, 97, {hottest}]
power_w = [20, 150, 148, 149]
"""
#: As long as a test that interrupts it can take.
ENDLESS = ("--minutes", 5000)


def machine(folder: Path, *faults: Mapping[str, Any], hottest: int = 97, **budgets: float) -> Path:
    """Write a machine whose chip gets hotter while it is soaked."""
    path = machine_file(folder / "machine.toml", *faults, **budgets)
    path.write_text(path.read_text("utf-8") + TELEMETRY.format(hottest=hottest), "utf-8")
    return path


def soak(folder: Path, simulated: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return cli("soak", "--simulate", simulated, "--out", folder / "run", "--minutes", 2, *arguments)


def outcome_in(folder: Path) -> Outcome:
    outcome, *others = read_results(folder / "run" / "results.json").outcomes
    assert not others
    return outcome


def verdict(ended: subprocess.CompletedProcess[str]) -> str:
    """Return the last line that was printed, after at most ten others without progress."""
    lines = ended.stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("SIMULATED"))
    assert len(lines) - first <= 10
    return lines[-1]


def test_one_flipped_bit_is_found_with_its_time_and_temperature(tmp_path: Path) -> None:
    ended = soak(tmp_path, machine(tmp_path, FLIP))
    assert ended.returncode == FINDINGS, ended.stdout + ended.stderr
    said = verdict(ended)
    heat = r"at 97 °C and 14[89] W; 24 steps in 2 min, 1 mismatch\."
    assert re.fullmatch(rf"Not stable: first wrong result after 1 min \d+ s {heat}", said)
    outcome = outcome_in(tmp_path)
    assert (outcome.state, outcome.setting) == ("wrong", "default")
    [mismatch] = outcome.numerics["mismatch"]
    assert (mismatch["elements"], mismatch["bits"]) == (1, 1)
    assert mismatch["of"].startswith("the gradient of layers.")
    assert outcome.conditions["peak"] == {"temperature_junction_c": 97, "power_w": 150}
    results = read_results(tmp_path / "run" / "results.json")
    assert results.recommendation is not None
    assert results.recommendation.sentence.startswith(said)
    [finding] = [each for each in results.findings if each.id == "soak-default"]
    assert (finding.severity, finding.cause) == ("error", "hw-power-or-fault")
    assert 'id="h-soaks"' in (tmp_path / "run" / "report.html").read_text("utf-8")


@pytest.mark.thorough
class TestVerdicts:
    def test_a_card_that_computes_right_is_stable(self, tmp_path: Path) -> None:
        ended = soak(tmp_path, machine(tmp_path))
        assert ended.returncode == OK
        assert verdict(ended) == "Stable: 24 steps in 2 min at up to 97 °C and 150 W, no mismatch."
        assert outcome_in(tmp_path).numerics["bit_for_bit"] is True

    def test_a_difference_within_rounding_is_flaky(self, tmp_path: Path) -> None:
        ended = soak(tmp_path, machine(tmp_path, {**FLIP, "bit": 2}))
        assert ended.returncode == FINDINGS
        assert verdict(ended).startswith("Not stable: first different result after ")
        assert outcome_in(tmp_path).state == "flaky"
        assert "--setting deterministic" in ended.stdout

    def test_a_library_that_is_always_wrong_is_not_a_matter_of_load(self, tmp_path: Path) -> None:
        ended = soak(tmp_path, machine(tmp_path, {"library": "miopen", "effect": "wrong"}))
        assert ended.returncode == FINDINGS
        assert verdict(ended).startswith("Wrong: every step differs from fp64 by ")

    def test_a_library_whose_results_vary_is_compared_within_rounding(self, tmp_path: Path) -> None:
        fault = {"library": "hip", "effect": "wrong", "operator": "^silu$", "chance": 0.2}
        ended = soak(tmp_path, machine(tmp_path, fault))
        assert ended.returncode == FINDINGS
        assert outcome_in(tmp_path).numerics["bit_for_bit"] is False

    def test_heat_at_the_limit_ends_it(self, tmp_path: Path) -> None:
        ended = soak(tmp_path, machine(tmp_path, hottest=111), "--minutes", 60)
        assert ended.returncode == FINDINGS
        assert verdict(ended).startswith("Too hot: stopped at 111 °C, the limit is 110 °C; ")
        assert outcome_in(tmp_path).numerics["stopped"]["quantity"] == "temperature_junction_c"

    def test_the_user_s_limit_counts(self, tmp_path: Path) -> None:
        ended = soak(tmp_path, machine(tmp_path), "--minutes", 60, "--stop-at", 90)
        assert verdict(ended).startswith("Too hot: stopped at 97 °C, the limit is 90 °C; ")

    def test_a_reset_keeps_what_was_learned(self, tmp_path: Path) -> None:
        ended = soak(tmp_path, machine(tmp_path, RESET))
        assert ended.returncode == FINDINGS
        said = verdict(ended)
        assert said.startswith("Not stable: the GPU was reset, after ")
        assert said.endswith(", no mismatch; the device responds again.")
        outcome = outcome_in(tmp_path)
        assert outcome.numerics["steps"] > 10
        assert len(outcome.attempts) == 1
        assert "kernel log: amdgpu 0000:0b:00.0: amdgpu: GPU reset begin!" in outcome.evidence

    def test_a_gpu_that_is_gone_has_an_exit_code_of_its_own(self, tmp_path: Path) -> None:
        gone = (
            {"library": "miopen", "effect": "hang", "after": 22},
            # Only the small test for an answer has a ReLU.
            {"library": "hip", "effect": "hang", "operator": "^relu$", "settings": ["default"]},
        )
        ended = soak(tmp_path, machine(tmp_path, *gone, first_call=5, steady=3, start=60))
        assert ended.returncode == WEDGED
        assert verdict(ended).endswith("; the device no longer responds.")

    def test_the_setting_of_results_is_soaked(self, tmp_path: Path) -> None:
        simulated = machine(tmp_path, {**FLIP, "settings": ["default"]})
        ended = soak(tmp_path, simulated, "--setting", "vendor-off")
        assert (ended.returncode, outcome_in(tmp_path).setting) == (OK, "vendor-off")

    def test_the_processor_is_named(self, tmp_path: Path) -> None:
        ended = cli("soak", "--device", "cpu", "--minutes", 0.05, "--out", tmp_path / "run")
        assert ended.returncode == OK
        said = ended.stdout.splitlines()[-1]
        assert said.startswith("Stable: ")
        assert said.endswith(", no mismatch. The CPU was tested, not a GPU.")


@pytest.mark.thorough
class TestEnds:
    def begun(self, folder: Path) -> Started:
        started = Started("soak", "--simulate", machine(folder), "--out", folder / "run", *ENDLESS)
        assert started.reaches(lambda: self.steps(folder) > 20)
        return started

    def steps(self, folder: Path) -> int:
        found = [
            each["progress"].get("steps", 0)
            for each in journal(folder / "run")
            if each["record"] == "progress"
        ]
        return found[-1] if found else 0

    def test_ctrl_c(self, tmp_path: Path) -> None:
        started = self.begun(tmp_path)
        said = started.interrupt().splitlines()[-1]
        assert started.process.returncode == INTERRUPTED
        assert said.startswith("Stopped before its end: ")
        assert outcome_in(tmp_path).state == "aborted"
        assert wait_until(lambda: not started.alive(), 20)

    def test_a_killed_child(self, tmp_path: Path) -> None:
        started = self.begun(tmp_path)
        # Children of the run's process import torch; the one that computes is the youngest.
        os.kill(max(self.workers(started)), signal.SIGKILL)
        said = started.process.communicate(timeout=60)[0].splitlines()[-1]
        assert started.process.returncode == FINDINGS
        assert said.startswith("Unknown: something ended the process (SIGKILL); ")
        assert outcome_in(tmp_path).numerics["steps"] > 20

    def workers(self, started: Started) -> list[int]:
        found = []
        for pid in started.alive():
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if pid != started.process.pid and b"guardian" not in command:
                found.append(pid)
        return found

    def test_a_killed_controller(self, tmp_path: Path) -> None:
        started = self.begun(tmp_path)
        started.kill()
        assert wait_until(lambda: not started.alive(), 20)
        folder = tmp_path / "run"
        assert rocmprobe("report", folder, "--format", "json").returncode == OK
        outcome = outcome_in(tmp_path)
        assert (outcome.state, outcome.cause) == ("aborted", "run-died")
        assert outcome.numerics["steps"] > 20
        resumed = cli("run", "--resume", folder)
        assert resumed.returncode == OK, resumed.stdout
        assert outcome_in(tmp_path).numerics["steps"] > 20
        assert json.loads((folder / "results.json").read_text("utf-8"))["partial"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--setting", "float64"), "a soak trains in float32 on contiguous images"),
        (("--setting", "nonsense"), "--setting: onednn has no setting 'nonsense'"),
        (("--setting", "no-faulty-solvers"), "only a run can derive this setting"),
        (("--device", "all"), "a soak tests one device"),
    ],
)  # fmt: skip
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    device = () if "--device" in arguments else ("--device", "cpu")
    ended = cli("soak", "--out", tmp_path / "run", *device, *arguments)
    assert (ended.returncode, ended.stdout) == (USAGE, "")
    assert words in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()
