"""The test for Debian's autopkgtest: its exit codes by a stand-in, all of it where autopkgtest is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = Path(__file__).parents[2] / "examples" / "autopkgtest"
SCRIPT = RECIPE / "debian" / "tests" / "rocmprobe-check"


def program(folder: Path, body: str) -> str:
    """Put a stand-in for rocmprobe into ``folder``; a PATH on which it is found."""
    path = folder / "rocmprobe"
    path.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
    path.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_the_stanza_skips_and_takes_output_on_stderr() -> None:
    lines = (RECIPE / "debian" / "tests" / "control").read_text("utf-8").splitlines()
    stanza = dict(line.split(": ", 1) for line in lines)
    assert stanza["Tests"] == SCRIPT.name
    # Without the first the exit code 77 is a failure, without the second every warning.
    assert stanza["Restrictions"] == "skippable, allow-stderr"
    assert os.access(SCRIPT, os.X_OK)


@pytest.mark.parametrize("code", [0, 1, 77])
def test_the_code_is_that_of_the_check(tmp_path: Path, code: int) -> None:
    path = program(tmp_path, f'echo "$*"; exit {code}')
    ended = subprocess.run([SCRIPT], env={"PATH": path}, capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert ended.stdout == "check --exit-codes autopkgtest --device cuda:0 --budget 300\n"


@pytest.mark.thorough
@pytest.mark.skipif(not shutil.which("autopkgtest"), reason="autopkgtest is not installed")
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("--simulate healthy-gfx1100", 0, "PASS"),
        ("--simulate rdna1-rocm52-conv-dead", 4, "FAIL"),
        # A machine without this GPU, whatever it has.
        ("--device cuda:15", 8, "SKIP"),
    ],
)
def test_autopkgtest_passes_fails_and_skips(tmp_path: Path, arguments: str, code: int, told: str) -> None:
    package, out = tmp_path / "package", tmp_path / "out"
    shutil.copytree(RECIPE, package)
    (package / "debian" / "changelog").write_text(
        "a (1) unstable; urgency=low\n\n  * A.\n\n -- A <a@example.org>  Sun, 22 Nov 2026 22:00:00 +0000\n",
        "utf-8",
    )
    (package / "debian" / "control").write_text(
        "Source: a\nMaintainer: A <a@example.org>\nSection: misc\nPriority: optional\n"
        "Standards-Version: 4.7.0\n\nPackage: a\nArchitecture: all\nDescription: a\n a\n", "utf-8"
    )  # fmt: skip
    # Neither the package nor rocmprobe is installed on this machine.
    tests = package / "debian" / "tests" / "control"
    tests.write_text(tests.read_text("utf-8").replace("Depends: @, rocmprobe", "Depends:"), "utf-8")
    path = program(tmp_path, f'exec {sys.executable} -m rocmprobe "$@" {arguments}')
    command = [
        "autopkgtest",
        "--no-built-binaries",
        f"--env=PATH={path}",
        f"--output-dir={out}",
        f"{package}/",
    ]
    ended = subprocess.run([*command, "--", "null"], capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    summary = (out / "summary").read_text("utf-8")
    assert summary.split()[:2] == ["rocmprobe-check", told], summary
