"""Cold and warm starts: which databases and caches their children find, and what is made of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from runs import CHECKOUT, PROBLEM, Run, machine_file, run

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.launch import databases_folder
from rocmprobe.engine.outcome import merge_starts
from rocmprobe.engine.trial import START_ROUNDS
from rocmprobe.judge.findings.first_calls import start_ups
from rocmprobe.model.results import Attempt, Outcome

pytest.importorskip("torch")

#: In front of the real torch: says at each first convolution of a process what it finds in the database,
#: and leaves a record there, as MIOpen does.
LIBRARY = """
import os, sys
sys.path.remove(os.path.dirname(os.path.dirname(__file__)))
del sys.modules["torch"]
import torch
real, met = torch.nn.functional.conv2d, []
def conv2d(*arguments, **named):
    folder = os.environ["MIOPEN_USER_DB_PATH"]
    if not met:
        met.append(os.write(1, f"finds {sorted(os.listdir(folder))}\\n".encode()))
    open(os.path.join(folder, "record"), "w").close()
    return real(*arguments, **named)
torch.nn.functional.conv2d = conv2d
"""
COLD, WARM = "finds []", "finds ['record']"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("started")
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(LIBRARY)
    (folder / "torch" / "version.py").write_text("__version__ = '2.4.0'\ncuda = None\nhip = None\n")
    return run(
        folder / "out", "--device", "cpu", "--only", "start-up", "--only", "convolution", "--settings",
        "vendor-off", "--problem", PROBLEM, "--purpose", "inference",
        env={"PYTHONPATH": os.pathsep.join(map(str, (folder, CHECKOUT)))},
    )  # fmt: skip


def found(made: Run, setting: str) -> list[str]:
    """What the children of a start-up found, in the order in which they were started."""
    mine = [trial for trial in made.results.trials if f"/{setting}/start-up/" in trial.id]
    return [line for trial in mine for line in trial.log.splitlines() if line.startswith("finds")]


@pytest.mark.thorough
@pytest.mark.parametrize("setting", ["default", "vendor-off"])
def test_every_second_child_finds_what_the_one_before_left(started: Run, setting: str) -> None:
    assert started.ended.returncode == 0, started.ended.stdout + started.ended.stderr
    assert found(started, setting) == [COLD, WARM] * START_ROUNDS


@pytest.mark.thorough
def test_the_times_of_all_children_are_in_the_outcome(started: Run) -> None:
    outcome = next(each for each in started.results.outcomes if each.check == "start-up")
    assert outcome.state == "pass"
    assert len({attempt.trial for attempt in outcome.attempts}) == 2 * START_ROUNDS
    times = outcome.timings
    assert times["cold_starts"] == times["warm_starts"] == START_ROUNDS
    for kind in ("cold", "warm"):
        least, middle, largest = (times[f"{kind}_first_call{end}"] for end in ("_min", "", "_max"))
        assert 0 < least <= middle <= largest
    assert 0 < times["steady_p10"] <= times["steady"] <= times["steady_p90"]
    assert outcome.solver is None


@pytest.mark.thorough
def test_the_page_shows_them(started: Run) -> None:
    page = (started.folder / "report.html").read_text("utf-8")
    assert 'id="h-start-up"' in page
    assert len(start_ups(started.results.outcomes)) == 2


def test_a_start_that_fails_ends_the_start_up(tmp_path: Path) -> None:
    machine = machine_file(
        tmp_path / "machine.toml", {"library": "miopen", "effect": "raise", "message": "no"}
    )
    made = run(
        tmp_path / "out", "--simulate", machine, "--only", "start-up", "--settings", "default,", "--problem",
        PROBLEM,
    )  # fmt: skip
    (outcome,) = made.results.outcomes
    assert (outcome.state, outcome.evidence[0]) == ("error", "RuntimeError: no")
    assert "cold_first_call" not in outcome.timings
    assert start_ups(made.results.outcomes) == []


def test_one_round_where_time_is_short(tmp_path: Path) -> None:
    machine = machine_file(tmp_path / "machine.toml", starts=0.001)
    made = run(
        tmp_path / "out", "--simulate", machine, "--only", "start-up", "--settings", "default,", "--problem",
        PROBLEM,
    )  # fmt: skip
    (started,) = start_ups(made.results.outcomes)
    assert (started.cold.starts, started.warm.starts) == (1, 1)
    assert started.cache_survives is None
    assert "too few starts" in (made.folder / "report.html").read_text("utf-8")


def test_folders_keep_a_start_up_apart() -> None:
    case = Case("cuda:0", "torch", "default", "throughput", "float32", PROBLEM)
    start = Case("cuda:0", "torch", "default", "start-up", "float32", PROBLEM)
    assert databases_folder(Path("run"), case) == Path("run/cuda0_torch_default")
    assert databases_folder(Path("run"), start) == Path(f"run/cuda0_torch_default_{PROBLEM}")


def outcome(first_call: float) -> Outcome:
    return Outcome(
        "id", "cuda:0", "torch", "default", "start-up", "conv", "pass",
        attempts=(Attempt("pass", "trial", seconds=first_call),),
        timings={"first_call": first_call, "steady": 1.0, "steady_p10": 0.5, "steady_p90": 2 * first_call},
    )  # fmt: skip


def test_a_warm_start_that_fails_says_that_it_was_warm() -> None:
    crash = replace(outcome(1.0), state="crash", evidence=("SIGSEGV", "more"), timings={})
    found = merge_starts([outcome(2.0)], [crash])
    assert (found.state, found.evidence[0], found.evidence[-1]) == ("crash", "SIGSEGV", "more")
    assert "filled databases" in found.evidence[1]
    assert merge_starts([crash], []).evidence == crash.evidence


def test_medians_and_ends_of_the_merged_starts() -> None:
    times = merge_starts(
        [outcome(9.0), outcome(7.0), outcome(8.0)], [outcome(each) for each in (3.0, 1.0, 2.0)]
    )
    assert times.timings == {
        "seconds": 30.0, "steady": 1.0, "steady_p10": 0.5, "steady_p90": 18.0,
        "cold_first_call": 8.0, "cold_first_call_min": 7.0, "cold_first_call_max": 9.0, "cold_starts": 3,
        "warm_first_call": 2.0, "warm_first_call_min": 1.0, "warm_first_call_max": 3.0, "warm_starts": 3,
    }  # fmt: skip
    assert [attempt.seconds for attempt in times.attempts] == [9.0, 3.0, 7.0, 1.0, 8.0, 2.0]
