"""User, home and host stay at home."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import Run, run

WRITTEN = ("results.json", "journal.jsonl", "report.html", "junit.xml")
ENV = {"HOME": "/home/plantedname", "USER": "plantedname", "LOGNAME": "plantedname"}


def talkative(folder: Path, *arguments: str) -> Run:
    """A run whose torch names the user's home and the user in all that it says."""
    package = folder / "torch"
    package.mkdir()
    said = "'/home/plantedname/.cache/miopen, owner plantedname'"
    (package / "__init__.py").write_text(f"print({said})\nraise OSError({said})")
    (package / "version.py").write_text("__version__ = '2.4.0'\ncuda = None\nhip = None\n")
    env = {**ENV, "PYTHONPATH": str(folder)}
    return run(folder / "out", "--device", "cpu", "--only", "copy", *arguments, env=env)


def test_planted_names_are_nowhere_in_what_a_run_writes(tmp_path: Path) -> None:
    done = talkative(tmp_path)
    for name in WRITTEN:
        assert "plantedname" not in (done.folder / name).read_text("utf-8"), name
    (outcome,) = done.outcomes.values()
    assert outcome.evidence[0] == "import torch: OSError: <home>/.cache/miopen, owner <user>"


@pytest.mark.parametrize("name", WRITTEN)
def test_no_redact_keeps_them(kept: Run, name: str) -> None:
    assert "/home/plantedname/.cache/miopen" in (kept.folder / name).read_text("utf-8")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return talkative(tmp_path_factory.mktemp("kept"), "--no-redact")
