"""Reader for this user's access to the device nodes of AMD GPUs.

The reader opens no device node, because opening can start a driver or wake a GPU.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Optional, TypedDict

from rocmprobe.detect.tree import NOT_LOOKED_UP, Tree, number
from rocmprobe.model.results import Fact

KFD = "/dev/kfd"
DRI = "/dev/dri"
#: WSL's device node for the GPU of the Windows host.
DXG = "/dev/dxg"
_RENDER = re.compile(r"renderD[0-9]+")
_GROUPS = "/etc/group"
#: Smallest number of a group that belongs to a person. Names of such groups are private.
_FIRST_PERSONAL = 1000
_READ_WRITE = 0o6


class DeviceNode(TypedDict):
    """A device node. In a recorded tree, only ``node`` is known."""

    node: str
    group: Optional[str]
    mode: Optional[str]
    usable: Optional[bool]


def read_facts(tree: Tree) -> dict[str, Fact]:
    """Return facts about the access to the device nodes.

    - ``access.nodes``: {"node", "group", "mode", "usable"} for each device node
    - ``access.groups``: the system groups of this user
    - ``access.groups_needed``: the groups that would give this user access to more nodes
    - ``kfd.device``: "present", "absent" or "no permission"

    For a recorded tree, only the nodes' names and ``kfd.device`` are known.
    """
    render = [f"{DRI}/{name}" for name in tree.names(DRI) if _RENDER.fullmatch(name)]
    paths = [path for path in (KFD, *render, DXG) if tree.exists(path)]
    if tree.own:
        names = _group_names(tree)
        nodes = [node for path in paths if (node := _node(tree, path, names))]
        own = {gid for gid in {*os.getgroups(), os.getegid()} if 0 < gid < _FIRST_PERSONAL}
        groups = sorted(names.get(gid, f"gid {gid}") for gid in own)
        refused = {node["group"] for node in nodes if not node["usable"] and _by_group(node)}
        member = Fact(groups, "this process")
        needed = Fact(sorted(refused - {"root", *groups}), f"{KFD} and {DRI}")
        kfd = _kfd(nodes)
    else:
        nodes = [{"node": path, "group": None, "mode": None, "usable": None} for path in paths]
        member = needed = Fact(None, NOT_LOOKED_UP)
        kfd = Fact("present" if KFD in paths else "absent", KFD)
        if not tree.exists("/dev"):
            kfd = Fact(None, "/dev: not in the recorded tree")
    return {
        "access.nodes": Fact(nodes, f"{KFD}, {DRI} and {DXG}"),
        "access.groups": member,
        "access.groups_needed": needed,
        "kfd.device": kfd,
    }


def _kfd(nodes: list[DeviceNode]) -> Fact:
    node = next((node for node in nodes if node["node"] == KFD), None)
    if node is None:
        return Fact("absent", KFD)
    if node["usable"]:
        return Fact("present", KFD)
    return Fact(
        "no permission",
        f"{KFD}: no read and write access for this user; group {node['group']}, mode {node['mode']}",
    )


def _node(tree: Tree, path: str, names: dict[int, str]) -> Optional[DeviceNode]:
    place = tree.locate(path)
    try:
        status = os.stat(place)
    except OSError:
        return None
    return {
        "node": path,
        # In a container, a group of the host often has no name.
        "group": names.get(status.st_gid, f"gid {status.st_gid}"),
        "mode": f"{stat.S_IMODE(status.st_mode):04o}",
        "usable": os.access(place, os.R_OK | os.W_OK),
    }


def _by_group(node: DeviceNode) -> bool:
    return int(node["mode"] or "0", 8) >> 3 & _READ_WRITE == _READ_WRITE


def _group_names(tree: Tree) -> dict[int, str]:
    """Return the names of the system groups in /etc/group, keyed by group id."""
    # The C library is not used, because it can query a server on the network.
    names: dict[int, str] = {}
    for line in (tree.text(_GROUPS) or "").splitlines():
        fields = line.split(":")
        gid = number(fields[2]) if len(fields) > 2 else None
        if gid is not None and gid < _FIRST_PERSONAL:
            names.setdefault(gid, fields[0])
    return names
