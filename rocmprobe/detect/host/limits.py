"""How much of the machine this process may use: its processors, and the limits of its control group."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import Optional

from rocmprobe.detect.tree import Tree, number
from rocmprobe.model.results import Fact

_CGROUP = "/proc/self/cgroup"
_ROOT = "/sys/fs/cgroup"
#: "No limit" of the first version of control groups: the largest page-aligned number.
_UNLIMITED = 1 << 62


def read_facts(tree: Tree) -> dict[str, Fact]:
    """``cpu.allowed``: processors (threads) that this process may run on; ``cpu.quota``: how many of them
    it may keep busy at once, a number with a fraction; ``memory.limit_bytes``: of its control group. The
    last two have no value where nothing is limited."""
    if not tree.own:
        unknown = Fact(None, "not looked up: --root")
        return {"cpu.allowed": unknown, **_limits(tree)}
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu.allowed": Fact(allowed, "sched_getaffinity"), **_limits(tree)}


def _limits(tree: Tree) -> dict[str, Fact]:
    # The path of a control group may name a user or a container, so sources leave it out.
    memory: list[tuple[int, str]] = []
    quota: list[tuple[float, str]] = []
    for folder in _folders(tree):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = number(tree.text(f"{folder}/{name}"))
            if limit is not None and limit < _UNLIMITED:
                memory.append((limit, f"{name} of the control group"))
        for name, cpus in (
            ("cpu.max", _cpu_max(tree, folder)),
            ("cpu.cfs_quota_us", _cfs_quota(tree, folder)),
        ):
            if cpus is not None:
                quota.append((cpus, f"{name} of the control group"))
    nothing = Fact(None, f"{_ROOT}: no limit")
    return {
        "memory.limit_bytes": Fact(*min(memory)) if memory else nothing,
        "cpu.quota": Fact(*min(quota)) if quota else nothing,
    }


def _folders(tree: Tree) -> list[str]:
    """The folders of this process's control groups and those above, which limit it as well.

    Format: cgroups(7), "hierarchy:controllers:path". In a container the path may be one of the host's,
    and the container's own group is then the root.
    """
    folders = []
    for line in (tree.text(_CGROUP) or "0::/").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            if controller in ("", "memory", "cpu"):
                group = PurePosixPath(_ROOT, controller, path.lstrip("/"))
                own = PurePosixPath(_ROOT, controller)
                folders += [str(place) for place in (group, *group.parents) if own in (place, *place.parents)]
    return list(dict.fromkeys(folders))


def _cpu_max(tree: Tree, folder: str) -> Optional[float]:
    quota, _, period = (tree.text(f"{folder}/cpu.max") or "").partition(" ")
    return _ratio(quota, period)


def _cfs_quota(tree: Tree, folder: str) -> Optional[float]:
    return _ratio(tree.text(f"{folder}/cpu.cfs_quota_us"), tree.text(f"{folder}/cpu.cfs_period_us"))


def _ratio(quota: Optional[str], period: Optional[str]) -> Optional[float]:
    time, length = number(quota), number(period)
    return round(time / length, 2) if time and length else None
