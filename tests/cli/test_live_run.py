"""A run that has not ended is nobody else's to take up."""

from __future__ import annotations

from pathlib import Path

from runs import SMALL, Background, cli, kinds, machine_file, resume


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
