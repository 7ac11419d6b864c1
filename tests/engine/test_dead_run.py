"""What can be had from the folder of a run that died."""

from __future__ import annotations

from pathlib import Path

from runs import PROBLEM, Background, cli, kinds, resume

ARGUMENTS = (
    "--device", "cpu", "--only", "convolution", "--settings", "vendor-off,bypass", "--problem", PROBLEM,
)  # fmt: skip


def test_the_page_of_a_dead_run_is_marked_partial_and_what_was_in_flight_can_be_asked_again(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "out"
    victim = Background(folder, *ARGUMENTS)
    assert victim.reaches(lambda: kinds(folder).count("outcome") >= 2)
    victim.kill()
    page = tmp_path / "page.html"
    assert cli("report", folder, "-o", page).returncode == 0
    assert "Partial run" in page.read_text("utf-8")

    again = resume(folder, "--retry-aborted")
    assert set(again.states.values()) == {"pass"}
    assert len(again.states) == 9


def test_a_line_that_was_torn_by_the_kill_takes_no_other_along(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    victim = Background(folder, *ARGUMENTS)
    assert victim.reaches(lambda: kinds(folder).count("outcome") >= 2)
    victim.kill()
    path = folder / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rstrip(b"\n").rfind(b"\n") + 40])
    resumed = resume(folder)
    assert not resumed.results.partial
    assert len(resumed.outcomes) == 9
