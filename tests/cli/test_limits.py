"""Limits of the system that a command meets: one line that names the limit, and exit code 5."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner
from runs import SMALL, environment

from rocmprobe.cli import main
from rocmprobe.cli.base import exhausted, exit_code_command
from rocmprobe.model.results import BadInput
from rocmprobe.process import limits


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
@pytest.mark.skipif(
    bool(subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode),
    reason="needs a mount namespace",
)
@pytest.mark.parametrize(
    ("mount", "code", "words"),
    [
        ("umount -l /proc", 2, "/proc is missing"),
        ("mount -t tmpfs -o size=64k none $TMPDIR", 2, "less than 16 MiB are free"),
        ("mount -t tmpfs -o ro none $HOME", 0, ""),
    ],
)
def test_a_run_names_what_the_machine_lacks(tmp_path: Path, mount: str, code: int, words: str) -> None:
    homes = {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}
    for folder in homes.values():
        Path(folder).mkdir()
    command = [sys.executable, "-m", "rocmprobe", "run", "--device", "cpu", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", *command, *SMALL, "--fail-on", "never"],
        env=environment(homes), text=True, capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert done.stderr.count("\n") <= 1


def test_no_space_for_temporary_files_and_too_few_files_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with pytest.raises(BadInput, match=r": less than 16 MiB are free; free space there, or set TMPDIR"):
        limits.check_limits()
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (12, 12))
    with pytest.raises(OSError, match="Too many open files") as caught:
        limits.check_limits()
    assert "ulimit -n" in exhausted(caught.value)
