"""Which processes use a GPU, from recorded trees of the kernel's list."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from machine_trees import NODES, Build

from rocmprobe.detect.gpus.users import users
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact, Gpu

GPU_ID, OTHER_ID = 26273, 51820
GPU = Gpu(vendor=Fact("amd"), address=Fact("0000:03:00.0"))
CARD = {
    f"{NODES}/1/gpu_id": f"{GPU_ID}\n",
    f"{NODES}/1/properties": "simd_count 80\nvendor_id 4098\nlocation_id 768\ndomain 0\n",
}


def process(pid: int, **files: str) -> dict[str, str]:
    """The kernel's list with a process; "__" in a name stands for "/"."""
    return {f"sys/class/kfd/kfd/proc/{pid}/{name.replace('__', '/')}": text for name, text in files.items()}


@pytest.mark.parametrize(
    ("files", "pids"),
    [
        pytest.param({}, [], id="no process"),
        pytest.param(process(7, **{f"vram_{GPU_ID}": "4096\n"}), [7], id="memory on the GPU"),
        pytest.param(process(7, **{f"vram_{GPU_ID}": "0\n", "queues__0__gpuid": f"{GPU_ID}\n"}), [7],
                     id="a queue on the GPU"),
        pytest.param(process(7, **{f"vram_{OTHER_ID}": "4096\n", f"vram_{GPU_ID}": "0\n"}), [],
                     id="memory on another GPU"),
        pytest.param(process(7, **{f"vram_{GPU_ID}": "0\n", "queues__0__gpuid": f"{OTHER_ID}\n"}), [],
                     id="a queue on another GPU"),
        pytest.param(process(7, **{f"vram_{GPU_ID}": "0\n"}), [], id="a monitor"),
        pytest.param(process(7, pasid="32769\n"), [7], id="an old kernel does not say what a process uses"),
        pytest.param({"proc/7/fd/7": "-> /dev/kfd", "proc/8/fd/7": "-> /dev/dri/renderD128"}, [7],
                     id="descriptors count if the kernel has no list"),
        pytest.param({**process(7, **{f"vram_{GPU_ID}": "0\n"}), "proc/7/fd/7": "-> /dev/kfd"}, [],
                     id="descriptors do not count if the kernel has a list"),
    ],
)  # fmt: skip
def test_users_of_a_gpu(build: Build, files: dict[str, str], pids: list[int]) -> None:
    build.files({**CARD, **files})
    assert [each.pid for each in users(Tree(build.root), GPU, own=1)] == pids


def test_a_user_has_a_name_and_this_process_is_left_out(build: Build) -> None:
    build.files({**CARD, **process(7, pasid="1"), **process(8, pasid="2"), "proc/7/comm": "python3\n"})
    (only,) = users(Tree(build.root), GPU, own=8)
    assert (only.pid, only.name, only.source) == (7, "python3", "/sys/class/kfd/kfd/proc")


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
