"""Processes that use a GPU.

The kernel lists the processes that use AMD GPUs in ``/sys/class/kfd/kfd/proc`` (source:
drivers/gpu/drm/amd/amdkfd/kfd_process.c). Other processes are found by their open files in /proc. This module
has not been tested on hardware.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from rocmprobe.detect.gpus.kfd import read_nodes
from rocmprobe.detect.host.access import KFD
from rocmprobe.detect.tree import Tree, number
from rocmprobe.model.results import Gpu
from rocmprobe.process.processes import pid_namespace
from rocmprobe.runtimes.kfd import NODES

PROCESSES = "/sys/class/kfd/kfd/proc"

#: Inode of the host's PID namespace: PROC_PID_INIT_INO of linux include/linux/proc_ns.h.
_HOST_NAMESPACE = 0xEFFFFFFC


@dataclass(frozen=True)
class GpuProcess:
    pid: int
    name: str
    source: str


def users(tree: Tree, gpu: Gpu, own: int) -> tuple[GpuProcess, ...]:
    """Return the processes other than ``own`` that use ``gpu``, sorted by pid.

    A display server does not open /dev/kfd. If ``gpu`` is no AMD GPU, return ().

    Processes without memory or queues on the GPU, e.g. sensor monitors, are left out. A process that is found
    only in /proc is returned for every GPU.
    """
    if gpu.vendor.value != "amd":
        return ()
    wanted = _gpu_id(tree, gpu)
    known = {pid for pid in map(number, tree.names(PROCESSES)) if pid is not None}
    processes = {
        pid: GpuProcess(pid, _name(tree, pid), PROCESSES) for pid in known if _uses(tree, pid, wanted)
    }
    for pid in _with_open(tree, KFD):
        if pid not in known:
            processes[pid] = GpuProcess(pid, tree.text(f"/proc/{pid}/comm") or "", f"/proc/{pid}/fd")
    processes.pop(own, None)
    return tuple(processes[pid] for pid in sorted(processes))


def _gpu_id(tree: Tree, gpu: Gpu) -> Optional[int]:
    nodes, _ = read_nodes(tree)
    node = next((node for node in nodes if node.address == gpu.address.value), None)
    return number(tree.text(f"{NODES}/{node.index}/gpu_id")) if node else None


def _uses(tree: Tree, pid: int, gpu_id: Optional[int]) -> bool:
    folder = f"{PROCESSES}/{pid}"
    memory = number(tree.text(f"{folder}/vram_{gpu_id}"))
    queues = [number(tree.text(f"{folder}/queues/{queue}/gpuid")) for queue in tree.names(f"{folder}/queues")]
    return gpu_id is None or memory is None or memory > 0 or gpu_id in queues


def _with_open(tree: Tree, node: str) -> Iterator[int]:
    for pid in map(number, tree.names("/proc")):
        if pid is None:
            continue
        for descriptor in tree.names(f"/proc/{pid}/fd"):
            # Ignore descriptors of other users' processes, and descriptors that were closed a moment ago.
            with contextlib.suppress(OSError):
                if os.readlink(tree.root / f"proc/{pid}/fd/{descriptor}") == node:
                    yield pid
                    break


def _name(tree: Tree, pid: int) -> str:
    """Return a process's name, or "" if it is unknown, e.g. because rocmprobe runs in a container."""
    # The kernel lists PIDs of the host. In a container, another process can have the same PID.
    if tree.own and pid_namespace() != _HOST_NAMESPACE:
        return ""
    return tree.text(f"/proc/{pid}/comm") or ""
