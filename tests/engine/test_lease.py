"""The lease of devices between processes, in the order in which files appear; and between two runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from runs import PROBLEM, Background, cli, journal, wait_until

from rocmprobe.checks.tools.case import Case
from rocmprobe.detect.sensors import read_conditions
from rocmprobe.detect.tree import Tree
from rocmprobe.engine.lease import DeviceLease, holder, leased
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.results import BadInput, Fact, Gpu
from rocmprobe.model.results_file import read_results

MEASUREMENT = (
    "--device", "cpu", "--only", "throughput", "--settings", "vendor-off", "--problem", PROBLEM,
)  # fmt: skip
#: Says that it asks, holds a device until it is told to go on, and says that it has it.
HOLDER = """
import sys, time
from pathlib import Path
from rocmprobe.engine.lease import DeviceLease
folder, name, device = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
lease = DeviceLease(device, Path("/runs") / name)
(folder / f"{name}.asks").touch()
lease.take()
(folder / f"{name}.has").touch()
while not (folder / f"{name}.go").exists():
    time.sleep(0.01)
lease.release()
"""


class Holding:
    def __init__(self, folder: Path, name: str, device: str = "cuda:0") -> None:
        self._path, self._name = folder, name
        command = [sys.executable, "-c", HOLDER, str(folder), name, device]
        self.process = subprocess.Popen(command)
        assert wait_until((folder / f"{name}.asks").exists)

    def has_it(self, seconds: float = 60) -> bool:
        return wait_until((self._path / f"{self._name}.has").exists, seconds)

    def release(self) -> None:
        (self._path / f"{self._name}.go").touch()
        assert self.process.wait(60) == 0


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_one_process_at_a_time_has_a_device_and_others_wait(tmp_path: Path) -> None:
    one = Holding(tmp_path, "one")
    assert one.has_it()
    two, elsewhere = Holding(tmp_path, "two"), Holding(tmp_path, "elsewhere", "cuda:1")
    assert elsewhere.has_it()
    elsewhere.release()
    assert not two.has_it(0.3)
    one.release()
    assert two.has_it()
    two.release()


def test_processes_that_take_a_device_again_and_again_take_turns(tmp_path: Path) -> None:
    """The kernel wakes who waits. A process that polls would hardly ever find the device free."""
    program = (
        "import sys, time; from pathlib import Path; from rocmprobe.engine.lease import DeviceLease\n"
        "over, taken = time.monotonic() + 3, 0\n"
        "while time.monotonic() < over:\n"
        "    lease = DeviceLease('cuda:0', Path('x'))\n"
        "    lease.take()\n"
        "    time.sleep(0.1)\n"
        "    lease.release()\n"
        "    taken += 1\n"
        "print(taken)\n"
    )
    pair = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(2)]
    assert min(int(each.communicate(timeout=60)[0]) for each in pair) >= 5


def test_a_lease_ends_with_a_killed_holder(tmp_path: Path) -> None:
    first = Holding(tmp_path, "first")
    assert first.has_it()
    next_one = Holding(tmp_path, "next")
    first.process.kill()
    first.process.wait()
    assert next_one.has_it()
    next_one.release()


def test_a_child_does_not_inherit_a_lease(tmp_path: Path) -> None:
    lease = DeviceLease("cuda:0", tmp_path)
    lease.take()
    leaked = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False)
    lease.release()
    try:
        other = Holding(tmp_path, "other")
        assert other.has_it()
        other.release()
    finally:
        leaked.kill()
        leaked.wait()


def test_a_runtime_folder_that_is_not_there_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run" / str(os.getuid())))
    lease = DeviceLease("tests-only", tmp_path)
    assert lease.take()
    lease.release()


def held() -> tuple[int, str] | None:
    found = holder("cuda:0")
    return (found.pid, found.run) if found else None


def test_the_holder_of_a_device_is_known_as_long_as_it_holds_it(tmp_path: Path) -> None:
    assert held() is None
    one = Holding(tmp_path, "one")
    assert one.has_it()
    assert held() == (one.process.pid, "/runs/one")
    one.release()
    assert held() is None
    two = Holding(tmp_path, "two")
    assert two.has_it()
    two.process.kill()
    two.process.wait()
    assert held() is None


def test_a_note_without_a_lock_is_not_taken_for_a_holder(tmp_path: Path) -> None:
    lease = DeviceLease("cuda:0", tmp_path)
    lease.take()
    assert held() == (os.getpid(), str(tmp_path))
    lease.release()
    assert list(tmp_path.glob("rocmprobe-locks-*/*.lease"))
    assert held() is None


def test_another_process_can_take_a_device_while_its_holder_is_looked_up(tmp_path: Path) -> None:
    over = threading.Event()

    def look_up() -> None:
        while not over.wait(0.01):
            holder("cuda:0")

    thread = threading.Thread(target=look_up)
    thread.start()
    lease = DeviceLease("cuda:0", tmp_path)
    try:
        for _ in range(50):
            assert lease.take(wait=False)
            lease.release()
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("kind", ["link", "writable", "file"])
def test_a_folder_that_others_can_change_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rocmprobe-locks-{os.getuid()}"
    if kind == "link":
        path.symlink_to(tmp_path)
    elif kind == "file":
        path.touch()
    else:
        path.mkdir()
        path.chmod(0o777)
    with pytest.raises(BadInput, match=rf"{path}: .*; remove it, or name"):
        DeviceLease("cuda:0", tmp_path).take()
    ended = cli("run", "--device", "cpu", "--out", tmp_path / "out", env={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": "x", "run": "", "since": 0}', "\xff"])
def test_a_torn_note_of_a_holder_is_passed_over(tmp_path: Path, text: str) -> None:
    lease = DeviceLease("cuda:0", tmp_path)
    lease.take()
    (note,) = tmp_path.glob("rocmprobe-locks-*/*.lease")
    note.write_bytes(text.encode("latin-1"))
    assert holder("cuda:0") is None
    lease.release()


def test_a_lease_that_another_process_has_is_refused_without_waiting(tmp_path: Path) -> None:
    one = Holding(tmp_path, "one")
    assert one.has_it()
    lease = DeviceLease("cuda:0", Path("check"))
    assert not lease.take(wait=False)
    assert held() == (one.process.pid, "/runs/one")
    one.release()
    assert lease.take(wait=False)
    assert held() == (os.getpid(), "check")
    lease.release()


NODES = Path("/sys/bus/pci/devices")


@pytest.mark.skipif(
    os.geteuid() != 0 or not NODES.is_dir() or not os.listdir(NODES), reason="needs root and a PCI device"
)
def test_a_gpu_is_leased_across_users(monkeypatch: pytest.MonkeyPatch) -> None:
    device = f"GPU {os.listdir(NODES)[0]}"
    ready, done = os.pipe(), os.pipe()
    other = os.fork()
    if not other:
        os.setuid(65534)
        # Its own folder, so that the two processes share only the GPU.
        os.environ["XDG_RUNTIME_DIR"] = "/dev/shm"
        os.write(ready[1], b"y" if DeviceLease(device, Path("theirs")).take() else b"n")
        os.close(done[1])
        os.read(done[0], 1)
        os._exit(0)
    lease = DeviceLease(device, Path("ours"))
    assert os.read(ready[0], 1) == b"y"
    assert not lease.take(wait=False)
    assert holder(device) is None
    os.close(done[1])
    assert lease.take()
    os.waitpid(other, 0)
    lease.release()
    shutil.rmtree("/dev/shm/rocmprobe-locks-65534")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a full file system")
def test_a_full_folder_is_one_line(tmp_path: Path) -> None:
    room = f"mount -t tmpfs -o nr_inodes=2 none {tmp_path} && exec {sys.executable} -m rocmprobe"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{room} run --device cpu --out /tmp/rocmprobe-never"],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.stderr.startswith(("unshare", "mount")):
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stderr) == (
        2,
        f"rocmprobe: {tmp_path}/rocmprobe-locks-0/cpu.lease: No space left on device; name another folder in "
        "XDG_RUNTIME_DIR\n",
    )


def gpu(address: str | None) -> Gpu:
    return Gpu(address=Fact(address, "a test"))


@pytest.mark.parametrize(
    ("device", "on_cpu", "name"),
    [
        ("cuda:0", False, "GPU 0000:03:00.0"),
        ("cuda:1", False, "cuda:1"),
        ("cuda:0", True, "cpu"),
    ],
)
def test_a_case_leases_what_it_computes_on(device: str, on_cpu: bool, name: str) -> None:
    targets = [Device("cuda:0", "miopen", gpu("0000:03:00.0")), Device("cuda:1", "miopen", gpu(None))]
    setting = next(row for row in settings_for("miopen", "all") if (row.device == "cpu") == on_cpu)
    assert leased(Case(device, setting.name, "convolution", "float32"), setting, targets) == name


@pytest.mark.thorough
def test_two_runs_on_one_device_both_finish(tmp_path: Path) -> None:
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    pair = [Background(tmp_path / name, *MEASUREMENT, env=env) for name in ("one", "two")]
    for each in pair:
        each.process.communicate(timeout=300)
        results = read_results(each.folder / "results.json")
        assert not results.partial
        assert {outcome.state for outcome in results.outcomes} == {"pass"}
        # A virtual CPU may have neither clock nor sensor.
        readable = set(read_conditions(Tree(Path("/")), None))
        for conditions in (outcome.conditions for outcome in results.outcomes):
            assert readable <= set(conditions.get("before", {})) & set(conditions.get("after", {}))


@pytest.mark.thorough
def test_who_waits_says_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lease = DeviceLease("cpu", Path("/runs/another"))
    lease.take()
    waiting = Background(tmp_path / "out", *MEASUREMENT)
    assert waiting.process.stdout
    said = next(line for line in waiting.process.stdout if "waiting" in line)
    assert re.search(
        rf"waiting for run /runs/another \(pid {os.getpid()}\) on cpu since \d\d:\d\d:\d\d\n$", said
    )
    assert "outcome" not in {record["record"] for record in journal(waiting.folder)}
    lease.release()
    waiting.process.communicate(timeout=300)
    left = [record["left"] for record in journal(waiting.folder) if record.get("phase") == "device"]
    assert left == [None, 0]
    assert {outcome.state for outcome in read_results(waiting.folder / "results.json").outcomes} == {"pass"}
