"""What a broken library does to a process becomes the right outcome, and the run goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from runs import PROBLEM, Background, Run, kinds, machine_file, run

from rocmprobe.model.results import Outcome
from rocmprobe.model.results_file import read_results

FLAKY = tuple(f"conv1d-fp32-n1-c{channels}-i9-k4-f3" for channels in range(1, 21))
CHOSEN = (
    "MIOpen(HIP): Info [TryLoad] Find-db regenerating.\n"
    "MIOpen(HIP): Info [FindConvFwdAlgorithm] FW Chosen Algorithm: ConvBinWinogradRxSf3x2 , 64, 0.5"
)


def problem(channels: int) -> str:
    return f"conv2d-fp32-n1-c{channels}-i8x8-k4-f3x3"


SEGV, ABORT, EXIT, IDLE, BUSY, RAISES, WRONG, FINE = map(problem, range(1, 9))


def fault(where: str, effect: str, **more: object) -> dict[str, object]:
    return {"library": "miopen", "problem": f"^{where}$", "effect": effect, **more}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run over a machine on which every problem breaks in a way of its own."""
    folder = tmp_path_factory.mktemp("faults")
    machine = machine_file(
        folder / "machine.toml",
        fault(SEGV, "signal"),
        fault(ABORT, "signal", signal="SIGABRT", stderr={"fwd": "MIOpen Error: no such kernel"}),
        fault(EXIT, "exit"),
        fault(IDLE, "hang"),
        fault(BUSY, "busy"),
        fault(RAISES, "raise", message="miopenStatusUnknownError"),
        fault(WRONG, "wrong", stderr={"fwd": CHOSEN}),
        fault("conv1d-.*", "raise", message="it comes and goes", chance=0.3),
        first_call=2, hangs=3,
    )  # fmt: skip
    problems = [SEGV, ABORT, EXIT, IDLE, BUSY, RAISES, WRONG, FINE, *FLAKY]
    asked = [argument for text in problems for argument in ("--problem", text)]
    return run(
        folder / "out", "--simulate", machine, "--only", "convolution", "--settings", "vendor-off",
        "--purpose", "inference", "--skip", "*/vendor-off/*/conv1d-*", *asked,
    )  # fmt: skip


def facts(outcome: Outcome) -> tuple[str, str | None, str | None, str | None, list[str]]:
    attempts = [attempt.state for attempt in outcome.attempts]
    return outcome.state, outcome.phase, outcome.activity, outcome.failure, attempts


@pytest.mark.parametrize(
    ("where", "expected", "first", "others"),
    [
        pytest.param(
            SEGV, ("crash", "first-call", None, "SIGSEGV", ["crash"] * 3), "SIGSEGV in phase first-call",
            ("Fatal Python error: Segmentation fault", "_break"), id="a segmentation fault has its stack",
        ),
        pytest.param(
            ABORT, ("crash", "first-call", None, "SIGABRT", ["crash"] * 3), "SIGABRT",
            ("MIOpen Error: no such kernel",), id="an abort keeps what the library printed",
        ),
        pytest.param(
            EXIT, ("crash", "first-call", None, "exit", ["crash"] * 3), "exit code 3", (),
            id="an exit inside the library is a crash",
        ),
        # The first hang of each kind is tried once more.
        pytest.param(
            IDLE, ("hang", "first-call", "idle", "timeout", ["hang"] * 2), "idle",
            ("most recent call first", "_break", "State:"), id="an idle hang has its stack",
        ),
        pytest.param(
            BUSY, ("hang", "first-call", "busy", "timeout", ["hang"] * 2), "busy",
            ("most recent call first", "_break", "State:"), id="a busy hang has its stack",
        ),
        pytest.param(
            RAISES, ("error", "first-call", None, "miopen-status", ["error"] * 3),
            "RuntimeError: miopenStatusUnknownError", (), id="an exception has the library's status",
        ),
        pytest.param(
            WRONG, ("wrong", "steady", None, None, ["wrong"] * 3), "output: ", (),
            id="wrong numbers say by how much",
        ),
    ],
)  # fmt: skip
def test_each_fault_has_its_state_its_cause_and_its_evidence(
    broken: Run, where: str, expected: tuple[object, ...], first: str, others: tuple[str, ...]
) -> None:
    outcome = broken.of("default", where)
    assert facts(outcome) == expected
    assert first in outcome.evidence[0]
    for words in others:
        assert any(words in line for line in outcome.evidence), words


def test_the_library_s_own_words_lead_and_a_process_that_lives_on_is_kept(broken: Run) -> None:
    assert broken.of("default", ABORT).evidence[1] == "MIOpen Error: no such kernel"
    assert len({attempt.trial for attempt in broken.of("default", RAISES).attempts}) == 1
    assert broken.of("default", WRONG).numerics["of"] == "output"


def test_what_the_library_chose_stands_in_the_outcome(broken: Run) -> None:
    outcome = broken.of("default", WRONG)
    assert (outcome.solver, outcome.algorithm) == ("ConvBinWinogradRxSf3x2", "Winograd")
    assert (outcome.workspace_bytes, outcome.find_db) == (64, "miss")
    silent = broken.of("default", SEGV)
    assert (silent.solver, silent.algorithm, silent.workspace_bytes, silent.find_db) == (None,) * 4


def test_what_comes_and_goes_is_flaky_with_its_count(broken: Run) -> None:
    flaky = [outcome for outcome in broken.outcomes.values() if outcome.state == "flaky"]
    assert flaky
    for outcome in flaky:
        states = [attempt.state for attempt in outcome.attempts]
        assert outcome.evidence[0].startswith(f"{states.count('error')} of {len(states)} tries failed: ")
        assert states[-1] == "pass"


def test_the_run_goes_on_with_the_next_case_and_other_settings(broken: Run) -> None:
    assert broken.ended.returncode == 1
    assert broken.of("default", FINE).state == "pass"
    assert {o.state for o in broken.outcomes.values() if o.setting == "vendor-off"} == {"pass"}
    assert not broken.results.partial


def test_every_crash_and_hang_ends_a_trial_of_its_own(broken: Run) -> None:
    exits = [trial.exit for trial in broken.results.trials]
    assert [exits.count(end) for end in ("SIGSEGV", "SIGABRT", "3", "killed")] == [3, 3, 3, 4]
    named = {trial.id for trial in broken.results.trials}
    assert {attempt.trial for outcome in broken.outcomes.values() for attempt in outcome.attempts} <= named


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("effect", "how"),
    [("hang", "no answer in 2 s in phase yardstick"), ("signal", "ended with SIGSEGV in phase yardstick")],
)
def test_a_yardstick_that_ends_the_process_costs_its_figure_alone(
    tmp_path: Path, effect: str, how: str
) -> None:
    machine = machine_file(tmp_path / "machine.toml", fault(FINE, effect, phase="yardstick"), steady=2)
    only = "*/default/throughput/*"
    done = run(
        tmp_path / "out", "--simulate", machine, "--only", only, "--problem", FINE, "--purpose", "inference"
    )
    (outcome,) = (each for each in done.results.outcomes if each.check == "throughput")
    assert outcome.state == "pass"
    assert outcome.timings["fwd"] > 0
    assert "gemm" not in outcome.timings
    assert outcome.evidence[0].startswith("the reference operations were not timed: ")
    assert how in outcome.evidence[0]
    assert done.ended.returncode == 0


@pytest.mark.thorough
def test_a_folder_taken_away_in_mid_run_is_a_probe_error_of_each_question_that_needs_it(
    tmp_path: Path,
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    begun = Background(
        tmp_path / "out", "--device", "cpu", "--only", "convolution", "--problem", PROBLEM,
        "--settings", "vendor-off,bypass", env={"TMPDIR": str(temporary)},
    )  # fmt: skip
    assert begun.reaches(lambda: kinds(begun.folder).count("outcome") >= 1)
    for folder in temporary.glob("rocmprobe-[0-9]*"):
        shutil.rmtree(folder)
        folder.touch()
    printed = begun.process.communicate(timeout=120)[0]
    assert begun.process.returncode == 1, printed
    results = read_results(begun.folder / "results.json")
    assert not results.partial
    broken = [outcome for outcome in results.outcomes if outcome.state == "probe-error"]
    assert {outcome.setting for outcome in broken} >= {"bypass"}
    assert all("NotADirectoryError" in outcome.evidence[0] for outcome in broken)
    assert {outcome.state for outcome in results.outcomes} == {"pass", "probe-error"}
    assert "NotADirectoryError" in printed
