"""Device locks between processes, in the order in which files appear."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs import wait_until

from rocmprobe.runner.locks import device_lock

#: Says that it asks, holds the lock until it is told to go on, and says that it has it.
HOLDER = """
import sys, time
from pathlib import Path
from rocmprobe.runner.locks import device_lock
folder, name, exclusive = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "exclusive"
(folder / f"{name}.asks").touch()
with device_lock("cuda:0", exclusive):
    (folder / f"{name}.has").touch()
    while not (folder / f"{name}.go").exists():
        time.sleep(0.01)
"""


class Holder:
    def __init__(self, folder: Path, name: str, mode: str) -> None:
        self._path, self._name = folder, name
        self.process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder), name, mode])
        assert wait_until((folder / f"{name}.asks").exists)

    def has_it(self, seconds: float = 60) -> bool:
        return wait_until((self._path / f"{self._name}.has").exists, seconds)

    def waits(self) -> bool:
        """Whether it sleeps in flock."""
        stat = Path(f"/proc/{self.process.pid}/syscall")
        try:
            return wait_until(lambda: stat.read_text().startswith("73 "), 2)
        except OSError:
            return not self.has_it(0.5)

    def let_go(self) -> None:
        (self._path / f"{self._name}.go").touch()
        assert self.process.wait(60) == 0


@pytest.fixture(autouse=True)
def own_lock_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_sharers_share_and_a_measurement_waits_for_them(tmp_path: Path) -> None:
    one, two = Holder(tmp_path, "one", "shared"), Holder(tmp_path, "two", "shared")
    assert one.has_it()
    assert two.has_it()
    alone = Holder(tmp_path, "alone", "exclusive")
    one.let_go()
    assert not alone.has_it(0.3)
    two.let_go()
    assert alone.has_it()
    alone.let_go()


def test_a_waiting_measurement_is_not_starved_by_new_sharers(tmp_path: Path) -> None:
    first = Holder(tmp_path, "first", "shared")
    assert first.has_it()
    alone = Holder(tmp_path, "alone", "exclusive")
    assert alone.waits()
    late = Holder(tmp_path, "late", "shared")
    assert not late.has_it(0.3)
    first.let_go()
    assert alone.has_it()
    assert not late.has_it(0.1)
    alone.let_go()
    assert late.has_it()
    late.let_go()


def test_the_lock_goes_with_a_killed_holder(tmp_path: Path) -> None:
    alone = Holder(tmp_path, "alone", "exclusive")
    assert alone.has_it()
    next_one = Holder(tmp_path, "next", "exclusive")
    alone.process.kill()
    alone.process.wait()
    assert next_one.has_it()
    next_one.let_go()


def test_a_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    with device_lock("cuda:0", exclusive=True):
        leaked = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False)
    try:
        alone = Holder(tmp_path, "alone", "exclusive")
        assert alone.has_it()
        alone.let_go()
    finally:
        leaked.kill()
        leaked.wait()


def test_a_runtime_folder_that_is_not_there_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run" / str(os.getuid())))
    with device_lock("tests-only", exclusive=False):
        pass
