"""A run that is killed at any moment: nothing that was learned is lost, and nothing is left running."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runs import PROBLEM, SMALL, Background, cli, journal, kinds, machine_file, resume, wait_until

GOOD = tuple(f"conv2d-fp32-n1-c{channels}-i8x8-k4-f3x3" for channels in (1, 2))
HANGS = "conv2d-fp32-n1-c3-i8x8-k4-f3x3"


ON_CPU = (
    "--device", "cpu", "--only", "convolution", "--settings", "vendor-off,bypass", "--problem", PROBLEM,
)  # fmt: skip


def settled(folder: Path) -> dict[str, Any]:
    """Outcomes by id; fails where one was written twice."""
    outcomes = [record["outcome"] for record in journal(folder) if record["record"] == "outcome"]
    assert len({outcome["id"] for outcome in outcomes}) == len(outcomes)
    return {outcome["id"]: outcome for outcome in outcomes}


def in_flight(folder: Path) -> list[str]:
    begun = [record["case"] for record in journal(folder) if record["record"] == "intent"]
    return [case for case in begun if case not in settled(folder)]


def hanging(folder: Path) -> int:
    return sum(case.endswith(f"{HANGS}/fwd") for case in in_flight(folder))


MOMENTS: dict[str, Callable[[Path], object]] = {
    "at the start": lambda folder: "run" in kinds(folder),
    "while torch is imported": lambda folder: "intent" in kinds(folder),
    "between answers": lambda folder: len(settled(folder)) >= 2,
    "in a hang": lambda folder: hanging(folder) >= 1,
}


def arguments(folder: Path, hangs: bool, gpus: int) -> list[str]:
    """A run of nine cases for each GPU of a machine that hangs in one of them, or in none."""
    fault = {"library": "miopen", "effect": "hang", "problem": HANGS, "directions": ["fwd"]}
    machine = machine_file(folder / "machine.toml", *([fault] if hangs else []), gpus=gpus, first_call=3)
    problems = [argument for text in (*GOOD, HANGS) for argument in ("--problem", text)]
    return [
        "--simulate", str(machine), "--device", "all", "--only", "convolution", "--settings", "vendor-off",
        "--skip", "*/vendor-off/*", *problems,
    ]  # fmt: skip


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """An empty folder whose name leaves room for that of a socket in it, unlike ``tmp_path``."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize(
    ("moment", "gpus"),
    [
        ("in a hang", 1),
        *(pytest.param(moment, 1, marks=pytest.mark.thorough) for moment in MOMENTS if moment != "in a hang"),
        pytest.param("between answers", 2, marks=pytest.mark.thorough),
    ],
)
def test_a_killed_run_is_taken_up_again(tmp_path: Path, short_folder: Path, moment: str, gpus: int) -> None:
    folder, hangs = tmp_path / "out", moment == "in a hang"
    victim = Background(folder, *arguments(tmp_path, hangs, gpus), env={"TMPDIR": str(short_folder)})
    assert victim.reaches(lambda: MOMENTS[moment](folder))
    # Both GPUs hang, so that nothing is left that hangs in the run that is resumed.
    assert not hangs or victim.reaches(lambda: hanging(folder) == gpus)
    victim.kill()
    assert wait_until(lambda: not victim.alive(), 5), "processes outlive the run"
    left = {path.name for path in short_folder.iterdir()}
    # Locks are kept for the next run; the other is pytest's, which keeps those of its last three runs.
    assert {name for name in left if not name.startswith(("rocmprobe-locks-", "pytest-of-"))} == set()
    known, lost = settled(folder), in_flight(folder)

    resumed = resume(folder)
    assert resumed.ended.returncode == 0, resumed.ended.stderr
    assert not resumed.results.partial
    final = settled(folder)
    assert {case: final[case] for case in known} == known
    assert set(final) == set(resumed.outcomes)
    assert len(final) == 9 * gpus
    for case in lost:
        assert (final[case]["state"], final[case]["failure"]) == ("aborted", "run-died")
    assert {final[case]["state"] for case in final if case not in lost} == {"pass"}


@pytest.mark.thorough
def test_the_page_of_a_dead_run_is_marked_partial_and_what_was_in_flight_can_be_asked_again(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "out"
    victim = Background(folder, *ON_CPU)
    assert victim.reaches(lambda: kinds(folder).count("outcome") >= 2)
    victim.kill()
    page = tmp_path / "page.html"
    assert cli("report", folder, "-o", page).returncode == 0
    assert "Partial run" in page.read_text("utf-8")

    again = resume(folder, "--retry-aborted")
    assert set(again.states.values()) == {"pass"}
    assert len(again.states) == 9


@pytest.mark.thorough
def test_a_line_that_was_torn_by_the_kill_takes_no_other_along(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    victim = Background(folder, *ON_CPU)
    assert victim.reaches(lambda: kinds(folder).count("outcome") >= 2)
    victim.kill()
    path = folder / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rstrip(b"\n").rfind(b"\n") + 40])
    resumed = resume(folder)
    assert not resumed.results.partial
    assert len(resumed.outcomes) == 9


def test_a_run_that_has_not_ended_cannot_be_resumed(tmp_path: Path) -> None:
    machine = machine_file(tmp_path / "machine.toml", {"library": "miopen", "effect": "hang"})
    folder = tmp_path / "out"
    stuck = Background(folder, "--simulate", machine, *SMALL)
    assert stuck.reaches(lambda: "intent" in kinds(folder))
    before = (folder / "journal.jsonl").read_bytes()
    refused = cli("run", "--resume", folder, "--retry-aborted")
    assert refused.returncode == 2
    assert (
        refused.stderr
        == f"rocmprobe: {folder}: its run is still active; wait for it, or end it with Ctrl-C\n"
    )
    assert (folder / "journal.jsonl").read_bytes() == before
    stuck.kill()
    ended = resume(folder).ended
    assert ended.returncode != 2, ended.stderr
    assert kinds(folder)[-1] == "end"
