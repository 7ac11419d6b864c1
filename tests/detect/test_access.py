"""Who may open the device nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rows import every_row

from rocmprobe.detect.host import access
from rocmprobe.detect.tree import Tree

GROUPS = "root:x:0:\nvideo:x:44:someone\nrender:x:109:someone\nsomeone:x:1000:\nbroken\n:x:7:\n"


class OwnTree(Tree):
    """A built tree that is taken for this machine's own."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.own = True

    def locate(self, name: str) -> Path:
        return self.root / name.lstrip("/")


@pytest.fixture
def facts(build, monkeypatch):
    """Facts of a user in ``groups`` on a machine whose nodes belong to ``owner`` and cannot be opened."""

    def read(groups, owner, usable=False, mode=0o660):
        build.file("etc/group", GROUPS)
        for name in ("dev/kfd", "dev/dri/renderD128", "dev/dri/card0"):
            build.file(name, "").chmod(mode)
        real_stat = os.stat

        def owned(path, *rest, **options):
            status = real_stat(path, *rest, **options)
            if "/dev/" not in str(path):
                return status
            return os.stat_result((*status[:5], owner, *status[6:10]))

        monkeypatch.setattr(access.os, "stat", owned)
        monkeypatch.setattr(access.os, "access", lambda *_: usable)
        monkeypatch.setattr(access.os, "getgroups", lambda: groups)
        monkeypatch.setattr(access.os, "getegid", lambda: 1000)
        return access.read_facts(OwnTree(build.root))

    return read


def test_user_outside_the_group(facts):
    found = facts([44, 1000], 109)
    assert found["access.nodes"].value == [
        {"node": "/dev/kfd", "group": "render", "mode": "0660", "usable": False},
        {"node": "/dev/dri/renderD128", "group": "render", "mode": "0660", "usable": False},
    ]
    assert found["access.groups"].value == ["video"]
    assert found["access.groups_needed"].value == ["render"]
    assert found["kfd.device"].value == "no permission"
    assert "group render, mode 0660" in found["kfd.device"].source
    assert "someone" not in str(found)


def test_user_in_the_group(facts):
    found = facts([44, 109], 109, usable=True)
    assert found["access.groups"].value == ["render", "video"]
    assert found["access.groups_needed"].value == []
    assert found["kfd.device"].value == "present"


def test_group_without_a_name_as_in_a_container(facts):
    assert facts([], 993)["access.groups_needed"].value == ["gid 993"]


@every_row(("owner", "mode"), [(0, 0o660), (109, 0o600)])
def test_no_group_helps(facts, owner, mode):
    assert facts([], owner, mode=mode)["access.groups_needed"].value == []


def test_recorded_tree_tells_the_nodes_alone(build):
    build.file("dev/dri/renderD129", "")
    build.file("dev/dri/card0", "")
    found = build.detect()
    assert found.value("access.nodes") == [
        {"node": "/dev/dri/renderD129", "group": None, "mode": None, "usable": None}
    ]
    assert found.value("kfd.device") == "absent"
    assert found.facts["access.groups"].source == "not looked up: --root"
