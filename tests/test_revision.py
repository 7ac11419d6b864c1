"""The version that a user sees: with the commit, unless it is a release."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rocmprobe.revision import commit_of


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(("git", "-C", folder, *identity, *arguments), check=True, capture_output=True)


def test_a_checkout_names_its_commit_unless_this_is_the_release(tmp_path: Path) -> None:
    assert commit_of(tmp_path, "1.2.3") == ""
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "a", "--date", "2026-01-02T12:00:00")
    commit, date = commit_of(tmp_path, "1.2.3").split(", ")
    assert (len(commit) >= 7, len(date)) == (True, len("2026-01-02"))
    git(tmp_path, "tag", "v1.2.4")
    assert commit_of(tmp_path, "1.2.3")
    git(tmp_path, "tag", "v1.2.3")
    assert commit_of(tmp_path, "1.2.3") == ""


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path, "1.2.3") == ""
