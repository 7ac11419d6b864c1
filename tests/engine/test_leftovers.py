"""Folders that a killed run left, its guardian killed too, are found by the next one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runs import rocmprobe

from rocmprobe.process import leftovers

MAKE = "from rocmprobe.process import leftovers; print(leftovers.own_folder())"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def of_a_dead_process() -> Path:
    done = subprocess.run([sys.executable, "-c", MAKE], capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    (folder / "database").touch()
    return folder


@pytest.mark.thorough
def test_the_next_run_removes_what_a_dead_one_left_and_says_so(folders: Path) -> None:
    left = of_a_dead_process()
    arguments = ("run", "--device", "cpu", "--only", "copy", "--out", folders / "out")
    done = rocmprobe(*arguments)
    assert done.returncode == 0, done.stderr
    # Another test may have left some in /tmp.
    assert re.search(r"Removed \d+ temporary folder\(s\) of a run that was killed", done.stdout)
    assert not left.exists()


def test_folders_of_the_living_and_of_others_stay(folders: Path) -> None:
    own = leftovers.own_folder()
    elsewhere = of_a_dead_process()
    space, rest = elsewhere.name.removeprefix("rocmprobe-").split("-", 1)
    elsewhere = elsewhere.rename(folders / f"rocmprobe-{int(space) + 1}-{rest}")
    locks = folders / f"rocmprobe-locks-{os.getuid()}"
    locks.mkdir()
    link = folders / own.name.replace(f"-{os.getpid()}-", "-0-")
    link.symlink_to(locks)
    assert leftovers.remove_leftovers() == 0
    assert {path.name for path in folders.iterdir()} == {own.name, elsewhere.name, locks.name, link.name}


def test_a_number_that_another_process_has_got_since_is_no_excuse(folders: Path) -> None:
    left = of_a_dead_process()
    space, _, started, end = left.name.removeprefix("rocmprobe-").split("-")
    living = subprocess.Popen(["sleep", "600"])
    left.rename(folders / f"rocmprobe-{space}-{living.pid}-{int(started) - 1}-{end}")
    assert leftovers.remove_leftovers() == 1
    living.send_signal(signal.SIGKILL)
    living.wait()


def test_the_fork_server_works_however_deep_the_temporary_folder_is(folders: Path) -> None:
    deep = folders / ("x" * 100)
    deep.mkdir()
    program = (
        "import sys\nfrom pathlib import Path\nfrom rocmprobe.engine.child import Child\n"
        "child = Child({}, Path(sys.argv[1]), spawn=False)\nprint(child.start_method)\nchild.kill()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, folders], env={**os.environ, "TMPDIR": str(deep)},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == "fork\n", done.stderr
    assert not list(deep.iterdir())
