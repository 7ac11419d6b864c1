"""Which other processes use a GPU.

For an AMD GPU the kernel's list of the processes that have /dev/kfd open (drivers/gpu/drm/amd/amdkfd
kfd_process.c: ``/sys/class/kfd/kfd/proc/PID``, with ``vram_GPUID`` in bytes and ``queues/N/gpuid``), and the
descriptors in /proc of the processes that this user may look into. Read from the source, not run on hardware.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from rocmprobe.detect.gpus.kfd import NODES, read_nodes
from rocmprobe.detect.tree import Tree, number
from rocmprobe.model.results import Gpu
from rocmprobe.process.processes import short_name

PROCESSES = "/sys/class/kfd/kfd/proc"
#: What a process that computes has open; a display server has other nodes.
_NODES = {"amd": "/dev/kfd", "nvidia": "/dev/nvidia-uvm"}


@dataclass(frozen=True)
class User:
    """A process that uses a GPU; ``name`` is "" where it is not known, ``source`` is where it was seen."""

    pid: int
    name: str
    source: str


def users(tree: Tree, gpu: Gpu, own: int) -> tuple[User, ...]:
    """The processes besides ``own`` that use ``gpu``, by pid. One of which the kernel does not say which GPU
    it uses counts."""
    vendor = str(gpu.vendor.value)
    found: dict[int, User] = {}
    if vendor == "amd":
        wanted = _gpu_id(tree, gpu)
        elsewhere = set()
        for pid in map(number, tree.names(PROCESSES)):
            if pid is None:
                continue
            gpus = _gpus_of(tree, pid)
            if gpus and wanted and wanted not in gpus:
                elsewhere.add(pid)
                continue
            found[pid] = User(pid, _name(tree, pid), PROCESSES)
        for pid in _with_open(tree, _NODES["amd"]):
            if pid not in elsewhere:
                found.setdefault(pid, User(pid, _name(tree, pid), f"/proc/{pid}/fd"))
    elif vendor in _NODES:
        for pid in _with_open(tree, _NODES[vendor]):
            found[pid] = User(pid, _name(tree, pid), f"/proc/{pid}/fd")
    found.pop(own, None)
    return tuple(found[pid] for pid in sorted(found))


def _gpu_id(tree: Tree, gpu: Gpu) -> Optional[int]:
    nodes, _ = read_nodes(tree)
    node = next((node for node in nodes if node.address == gpu.address.value), None)
    return number(tree.text(f"{NODES}/{node.index}/gpu_id")) if node else None


def _gpus_of(tree: Tree, pid: int) -> set[int]:
    """The ids of the GPUs on which a process has memory or queues."""
    folder = f"{PROCESSES}/{pid}"
    found = set()
    for name in tree.names(folder):
        gpu_id = number(name[len("vram_") :]) if name.startswith("vram_") else None
        if gpu_id is not None and number(tree.text(f"{folder}/{name}")):
            found.add(gpu_id)
    for queue in tree.names(f"{folder}/queues"):
        gpu_id = number(tree.text(f"{folder}/queues/{queue}/gpuid"))
        if gpu_id is not None:
            found.add(gpu_id)
    return found


def _with_open(tree: Tree, node: str) -> Iterator[int]:
    for pid in map(number, tree.names("/proc")):
        if pid is None:
            continue
        for descriptor in tree.names(f"/proc/{pid}/fd"):
            # Another user's, or it was closed a moment ago.
            with contextlib.suppress(OSError):
                if os.readlink(tree.root / f"proc/{pid}/fd/{descriptor}") == node:
                    yield pid
                    break


def _name(tree: Tree, pid: int) -> str:
    return tree.text(f"/proc/{pid}/comm") or (short_name(pid) if tree.own else "")
