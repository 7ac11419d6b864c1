"""Programs under rocmprobe end, print and get signals as without rocmprobe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import programs

PROGRAMS = programs.programs(megabytes=20)
QUICK = [
    ("SIGUSR1 to the process", "exec --explain"),
    ("a daemon that keeps stdout and stderr", "exec --explain"),
    ("stderr closed", "exec --explain"),
    ("SIGINT to the group", "shapes"),
    ("SIGSEGV", "shapes"),
    ("Ctrl-Z, fg and Ctrl-C in a terminal", "shapes"),
]
ALL = [
    pytest.param(title, command, marks=() if (title, command) in QUICK else pytest.mark.thorough)
    for title in PROGRAMS
    for command in programs.COMMANDS
]


@pytest.mark.parametrize(("title", "command"), ALL)
def test_program(tmp_path: Path, title: str, command: str) -> None:
    program = PROGRAMS[title]
    bare, found = (program.run(words, tmp_path) for words in ((), programs.COMMANDS[command]))
    assert programs.differences(bare, found) == [], (bare, found)


@pytest.mark.parametrize("stream", ["2>/dev/full", "<&- >&- 2>&-", "2>&{unread}"])
def test_a_message_that_nobody_can_read_changes_nothing(tmp_path: Path, stream: str) -> None:
    command = [*programs.COMMANDS["shapes"], "sh", "-c", "exit 4"]
    reader, unread = os.pipe()
    os.close(reader)
    script = '"$@" ' + stream.format(unread=unread)
    done = subprocess.run(
        ["bash", "-c", script, "bash", *command], cwd=tmp_path, pass_fds=[unread], check=False
    )
    os.close(unread)
    assert done.returncode == 4
    assert (tmp_path / "shapes.json").exists()
