"""A command whose Python would pass rocmprobe by is refused before anything runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from launched import program, refused

from rocmprobe.exec.command import find_program, with_configuration
from rocmprobe.model.results import BadInput

LONG = "#!/bin/sh\n'''exec' /a/long/way/to/python -I \"$0\" \"$@\"\n' '''\nprint(1)\n"
SCRIPTS = {
    "isolated": "#!/usr/bin/python3 -I\n",
    "without-site": "#!/usr/bin/python3 -sS\n",
    "split": "#!/usr/bin/env -S python3 -E\n",
    "long": LONG,
    "fine": "#!/usr/bin/python3 -s\n",
    "of-the-shell": "#!/bin/sh\nexec python3 -c 'print(1)' -I\n",
}
REFUSED = [
    ["python", "-I", "train.py"], ["python3", "-E", "-m", "train"], ["python3.11", "-S", "train.py"],
    ["/usr/bin/python3", "-uIB", "train.py"], ["python", "-X", "dev", "-I", "train.py"],
    ["python", "-Xdev", "-W", "error", "-E", "train.py"], ["python", "-Im", "train"],
    ["python", "--check-hash-based-pycs", "never", "-I", "train.py"], ["env", "python", "-I", "train.py"],
    ["env", "A=1", "-S", "python -I", "train.py"], ["env", "-vS", "python3 -E train.py"],
    ["env", "--split-string=python -I", "train.py"], ["env", "-u", "A", "python", "-S", "train.py"],
    ["env", "-C", "/", "nice", "python", "-I", "train.py"], ["nice", "-n", "5", "python", "-I", "train.py"],
    ["timeout", "9", "python", "-E", "train.py"], ["env", "-i", "python", "train.py"],
    ["env", "-", "python", "train.py"], ["env", "PYTHONPATH=lib", "python", "train.py"],
    ["env", "-uPYTHONPATH", "python", "train.py"], ["env", "--unset", "PYTHONPATH", "python", "train.py"],
    ["uv", "run", "python", "-I", "train.py"], ["timeout", "9", "env", "-i", "python", "train.py"],
    ["isolated"], ["without-site"], ["split", "x"], ["long"], ["env", "isolated"], ["nice", "./isolated"],
    ["sudo", "python", "train.py"], ["nice", "sudo", "-E", "true"],
]  # fmt: skip
TAKEN = [
    ["python", "train.py", "-I"], ["python", "-c", "pass", "-E"], ["python", "-m", "train", "-S"],
    ["python", "-mI"], ["python", "-W", "I", "train.py"], ["python", "-XI", "train.py"],
    ["python", "-", "-I"], ["python"], ["python", "-s", "-B", "-u", "-OO", "train.py"],
    ["env", "A=1", "-u", "B", "python", "train.py", "-I"], ["nice", "python", "train.py", "-E"],
    ["poetry", "run", "yolo", "train", "-I"], ["sh", "-c", "true", "-I"], ["fine", "-I"],
    ["of-the-shell", "-E"], ["env"],
]  # fmt: skip


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A PATH that has every program of the lists, as far as it is not the system's."""
    for name, text in SCRIPTS.items():
        program(tmp_path, text, name).chmod(0o755)
    for name in ("python", "python3", "python3.11", "uv", "poetry", "sudo", "timeout"):
        (tmp_path / name).symlink_to(sys.executable)
    return {"HOME": str(tmp_path), "PATH": f"{tmp_path}{os.pathsep}{os.defpath}"}


@pytest.mark.parametrize("command", REFUSED)
def test_refused(environ: dict[str, str], command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(environ["HOME"])
    with pytest.raises(BadInput, match=r"does not load|removes"):
        find_program(command, environ)


@pytest.mark.parametrize("command", TAKEN)
def test_taken(environ: dict[str, str], command: list[str]) -> None:
    assert find_program(command, environ)


@pytest.mark.parametrize("form", ["option", "script"])
def test_nothing_runs_and_one_line_says_why(tmp_path: Path, form: str) -> None:
    text = f"#!{sys.executable} -I\nopen('ran', 'w')"
    path = program(tmp_path, text)
    path.chmod(0o755)
    command = [sys.executable, "-E", path] if form == "option" else [path]
    assert "leave the option out" in refused(tmp_path, "--bypass", "always", "--", *command)
    assert not (tmp_path / "ran").exists()


def test_the_user_s_path_is_kept_as_it_is() -> None:
    site = with_configuration({})["PYTHONPATH"]
    for path in ("/a:/b", ":/a", "/a:"):
        assert with_configuration({"PYTHONPATH": path})["PYTHONPATH"] == f"{site}:{path}"
    once = with_configuration({"PYTHONPATH": "/a"})
    assert with_configuration(once) == once


def test_a_status_file_that_cannot_be_written_is_told_before(tmp_path: Path) -> None:
    command = ("--bypass", "always", "--", "touch", "ran")
    assert "ROCMPROBE_BYPASS_STATUS" in refused(tmp_path, *command, ROCMPROBE_BYPASS_STATUS="no/such/folder")
    assert not (tmp_path / "ran").exists()
