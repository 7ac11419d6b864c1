"""Device locks between processes, in the order in which files appear."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from runs import wait_until

from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.results import Fact, Gpu
from rocmprobe.run.locks import DeviceLock, holders, lock_name
from rocmprobe.run.targets import Target

#: Says that it asks, holds the lock until it is told to go on, and says that it has it.
HOLDER = """
import sys, time
from pathlib import Path
from rocmprobe.run.locks import DeviceLock
folder, name, exclusive = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "exclusive"
lock = DeviceLock("cuda:0", Path("/runs") / name, (folder / f"{name}.waits").touch)
(folder / f"{name}.asks").touch()
lock.take(exclusive)
(folder / f"{name}.has").touch()
while not (folder / f"{name}.go").exists():
    time.sleep(0.01)
lock.let_go()
"""


class Holding:
    def __init__(self, folder: Path, name: str, mode: str) -> None:
        self._path, self._name = folder, name
        self.process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder), name, mode])
        assert wait_until((folder / f"{name}.asks").exists)

    def has_it(self, seconds: float = 60) -> bool:
        return wait_until((self._path / f"{self._name}.has").exists, seconds)

    def waits(self) -> bool:
        """Whether it has said so."""
        return wait_until((self._path / f"{self._name}.waits").exists)

    def let_go(self) -> None:
        (self._path / f"{self._name}.go").touch()
        assert self.process.wait(60) == 0


@pytest.fixture(autouse=True)
def own_lock_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_sharers_share_and_a_measurement_waits_for_them(tmp_path: Path) -> None:
    one, two = Holding(tmp_path, "one", "shared"), Holding(tmp_path, "two", "shared")
    assert one.has_it()
    assert two.has_it()
    alone = Holding(tmp_path, "alone", "exclusive")
    one.let_go()
    assert not alone.has_it(0.3)
    two.let_go()
    assert alone.has_it()
    alone.let_go()


def test_a_waiting_measurement_is_not_starved_by_new_sharers(tmp_path: Path) -> None:
    first = Holding(tmp_path, "first", "shared")
    assert first.has_it()
    alone = Holding(tmp_path, "alone", "exclusive")
    assert alone.waits()
    late = Holding(tmp_path, "late", "shared")
    assert not late.has_it(0.3)
    first.let_go()
    assert alone.has_it()
    assert not late.has_it(0.1)
    alone.let_go()
    assert late.has_it()
    late.let_go()


def test_the_lock_goes_with_a_killed_holder(tmp_path: Path) -> None:
    alone = Holding(tmp_path, "alone", "exclusive")
    assert alone.has_it()
    next_one = Holding(tmp_path, "next", "exclusive")
    alone.process.kill()
    alone.process.wait()
    assert next_one.has_it()
    next_one.let_go()


def test_a_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    lock = DeviceLock("cuda:0", tmp_path)
    lock.take(alone=True)
    leaked = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False)
    lock.let_go()
    try:
        alone = Holding(tmp_path, "alone", "exclusive")
        assert alone.has_it()
        alone.let_go()
    finally:
        leaked.kill()
        leaked.wait()


def test_a_runtime_folder_that_is_not_there_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run" / str(os.getuid())))
    lock = DeviceLock("tests-only", tmp_path)
    lock.take(alone=False)
    lock.let_go()


def held() -> list[tuple[int, str, bool]]:
    return sorted((each.pid, each.run, each.alone) for each in holders("cuda:0").get("cuda:0", []))


def test_who_holds_a_device_is_told_as_long_as_it_does(tmp_path: Path) -> None:
    assert held() == []
    one, two = Holding(tmp_path, "one", "shared"), Holding(tmp_path, "two", "shared")
    assert one.has_it()
    assert two.has_it()
    told = sorted((each.process.pid, f"/runs/{name}", False) for name, each in (("one", one), ("two", two)))
    assert wait_until(lambda: held() == told)
    one.let_go()
    assert held() == [(two.process.pid, "/runs/two", False)]
    two.let_go()
    assert held() == []
    alone = Holding(tmp_path, "alone", "exclusive")
    assert wait_until(lambda: held() == [(alone.process.pid, "/runs/alone", True)])
    alone.process.kill()
    alone.process.wait()
    assert held() == []
    assert not list(tmp_path.glob("rocmprobe-locks-*/*.json"))


def test_a_process_with_the_number_of_a_dead_holder_is_not_taken_for_it(tmp_path: Path) -> None:
    lock = DeviceLock("cuda:0", tmp_path)
    lock.take(alone=True)
    (own,) = holders("cuda:0")["cuda:0"]
    assert own.lives
    assert not replace(own, start=(own.start or 0) - 1).lives
    # Of another container nothing can be said.
    assert replace(own, start=None, space=own.space + 1).lives
    lock.let_go()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"device": "cuda:0", "pid": 1, "what": 2}', "\xff"])
def test_a_torn_note_of_a_holder_is_passed_over(tmp_path: Path, text: str) -> None:
    lock = DeviceLock("cuda:0", tmp_path)
    lock.take(alone=True)
    (note,) = tmp_path.glob("rocmprobe-locks-*/*.json")
    note.write_bytes(text.encode("latin-1"))
    assert holders("cuda:0") == {}
    lock.let_go()


def gpu(address: str | None) -> Gpu:
    return Gpu(address=Fact(address, "a test"))


@pytest.mark.parametrize(
    ("target", "on_cpu", "simulated", "name"),
    [
        (Target("cuda:0", "miopen", gpu("0000:03:00.0")), False, False, "GPU 0000:03:00.0"),
        (Target("cuda:1", "miopen", gpu("0000:03:00.0")), False, False, "GPU 0000:03:00.0"),
        (Target("cuda:1", "miopen", gpu(None)), False, False, "cuda:1"),
        (Target("cuda:0", "miopen", gpu("0000:03:00.0")), True, False, "cpu"),
        (Target("cpu", "onednn"), False, False, "cpu"),
        (Target("cuda:0", "miopen", gpu("0000:03:00.0")), False, True, "simulated machines"),
    ],
)
def test_a_lock_is_of_what_computes(target: Target, on_cpu: bool, simulated: bool, name: str) -> None:
    rows = settings_for("miopen", "all")
    setting = next(row for row in rows if (row.device == "cpu") == on_cpu)
    assert lock_name(setting, target, simulated) == name


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_device_is_taken_at_once_or_not_at_all(tmp_path: Path, mode: str) -> None:
    holding = Holding(tmp_path, "one", mode)
    assert holding.has_it()
    lock = DeviceLock("cuda:0", Path("check"))
    assert not lock.take_at_once()
    holding.let_go()
    assert lock.take_at_once()
    assert [each.run for each in holders("cuda:0")["cuda:0"]] == ["check"]
    waiting = Holding(tmp_path, "two", mode)
    assert waiting.waits()
    lock.let_go()
    assert waiting.has_it()
    waiting.let_go()


def test_one_that_waits_alone_comes_before_one_that_takes_at_once(tmp_path: Path) -> None:
    sharing, measuring = Holding(tmp_path, "one", "shared"), Holding(tmp_path, "two", "exclusive")
    assert sharing.has_it()
    assert measuring.waits()
    assert not DeviceLock("cuda:0", Path("check")).take_at_once()
    sharing.let_go()
    assert measuring.has_it()
    measuring.let_go()
