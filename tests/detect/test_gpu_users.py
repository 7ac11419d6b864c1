"""Which processes use a GPU, from recorded trees of the kernel's list."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rows import every_row

from rocmprobe.detect.gpus.users import users
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact, Gpu

GPU_ID, OTHER_ID = 26273, 51820
GPU = Gpu(vendor=Fact("amd"), address=Fact("0000:03:00.0"))


def written(root: Path, name: str, text: str = "") -> None:
    path = root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def with_gpu(root: Path) -> Path:
    node = "/sys/class/kfd/kfd/topology/nodes/1"
    written(root, f"{node}/gpu_id", f"{GPU_ID}\n")
    written(root, f"{node}/properties", "simd_count 80\nvendor_id 4098\nlocation_id 768\ndomain 0\n")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return with_gpu(tmp_path)


def has_kfd_open(root: Path, pid: int, **files: str) -> None:
    (root / f"sys/class/kfd/kfd/proc/{pid}").mkdir(parents=True)
    for name, text in files.items():
        written(root, f"/sys/class/kfd/kfd/proc/{pid}/{name.replace('__', '/')}", text)


def found(root: Path, own: int = 1) -> list[int]:
    return [each.pid for each in users(Tree(root), GPU, own)]


@every_row(
    ("files", "uses"),
    [
        ({f"vram_{GPU_ID}": "4096\n"}, True),
        ({f"vram_{GPU_ID}": "0\n", "queues__0__gpuid": f"{GPU_ID}\n"}, True),
        ({f"vram_{OTHER_ID}": "4096\n", f"vram_{GPU_ID}": "0\n"}, False),
        ({f"vram_{GPU_ID}": "0\n", "queues__0__gpuid": f"{OTHER_ID}\n"}, False),
        # A monitor.
        ({f"vram_{GPU_ID}": "0\n"}, False),
        # An old kernel does not say what it uses.
        ({"pasid": "32769\n"}, True),
    ],
)
def test_one_that_has_the_driver_open_uses_the_gpu_that_its_memory_is_on(
    tmp_path: Path, files: dict[str, str], uses: bool
) -> None:
    root = with_gpu(tmp_path)
    has_kfd_open(root, 4711, **files)
    assert found(root) == ([4711] if uses else [])


def test_it_is_named_and_this_process_is_left_out(root: Path) -> None:
    has_kfd_open(root, 4711)
    has_kfd_open(root, 4712)
    written(root, "/proc/4711/comm", "python3\n")
    (only,) = users(Tree(root), GPU, own=4712)
    assert (only.pid, only.name, only.source) == (4711, "python3", "/sys/class/kfd/kfd/proc")


def test_descriptors_count_where_the_kernel_has_no_list(root: Path) -> None:
    (root / "proc/4711/fd").mkdir(parents=True)
    (root / "proc/4711/fd/7").symlink_to("/dev/kfd")
    (root / "proc/4712/fd").mkdir(parents=True)
    (root / "proc/4712/fd/7").symlink_to("/dev/dri/renderD128")
    assert found(root) == [4711]


def test_a_process_on_another_gpu_is_not_found_by_its_descriptors(root: Path) -> None:
    has_kfd_open(root, 4711, **{f"vram_{GPU_ID}": "0\n"})
    (root / "proc/4711/fd").mkdir(parents=True)
    (root / "proc/4711/fd/7").symlink_to("/dev/kfd")
    assert found(root) == []


def test_descriptors_of_this_machine_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.touch()
    monkeypatch.setattr("rocmprobe.detect.gpus.users.KFD", str(node))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as alone:
        held = subprocess.Popen(["sh", "-c", f"exec 9<{node}; echo; read line"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE)  # fmt: skip
        assert held.stdout is not None
        held.stdout.readline()
        try:
            pids = [each.pid for each in users(Tree(Path("/")), GPU, os.getpid())]
        finally:
            for process in (alone, held):
                process.communicate(b"\n")
    assert pids == [held.pid]
