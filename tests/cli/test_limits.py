"""Limits of the system that a command meets: one line that names the limit, and exit code 5."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from runs import SMALL, environment, machine_file

from rocmprobe.cli import main
from rocmprobe.cli.base import exhausted, exit_code_command


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "out of memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory"),
        (OSError(errno.EMFILE, "Too many open files"), "too many open files"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "processes or threads"),
        (RuntimeError("can't start new thread"), "processes or threads"),
        (OSError(errno.ENOSPC, "No space left on device", "/a/file"), "/a/file: No space left on device"),
    ],
    ids=lambda each: str(each) or "memory",
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_limit_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str, wrapped: bool
) -> None:
    @exit_code_command
    def fail() -> int:
        if wrapped:
            raise ImportError("not loaded") from error
        raise error

    monkeypatch.setattr(type(main), "get_command", lambda *_: click.Command("fail", callback=fail))
    done = CliRunner().invoke(main, ["fail"])
    assert done.exit_code == 5
    assert done.output.startswith("rocmprobe: ")
    assert words in done.output
    assert done.output.count("\n") == 1


def test_other_errors_keep_their_traceback() -> None:
    assert exhausted(PermissionError(errno.EACCES, "Permission denied")) == ""
    assert exhausted(RuntimeError("else")) == ""


@pytest.mark.thorough
@pytest.mark.parametrize("files", [8, 12])
def test_a_run_with_too_few_files_is_one_line(tmp_path: Path, files: int) -> None:
    words = ["run", "--simulate", machine_file(tmp_path / "machine.toml"), "--out", tmp_path / "out", *SMALL]
    done = subprocess.run(
        [sys.executable, "-m", "rocmprobe", *map(str, words)], env=environment(), text=True,
        capture_output=True, timeout=300, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert done.stderr.startswith("rocmprobe: too many open files; raise the limit with `ulimit -n 1024`")
    assert done.stderr.count("\n") == 1
