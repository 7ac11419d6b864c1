"""Facts of the host: access to device nodes, containers, WSL and packages."""

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


@every_row(
    ("name", "content", "kind"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", 'engine="podman-4.3.1"\n', "podman"),
        ("run/secrets/kubernetes.io/serviceaccount/namespace", "default", "kubernetes"),
        ("run/systemd/container", "systemd-nspawn\n", "systemd-nspawn"),
        ("run/systemd/container", "lxc\n", "lxc"),
        ("run/systemd/container", "wsl\n", "none"),
        ("run/systemd/container", "rubbish\n", "none"),
        ("proc/self/cgroup", "12:memory:/docker/0123abcd\n", "docker"),
        ("proc/self/cgroup", "0::/system.slice/docker-0123abcd.scope\n", "docker"),
        ("proc/1/cgroup", "0::/lxc.payload.box/init.scope\n", "lxc"),
        ("proc/self/cgroup", "0::/kubepods.slice/kubepods-burstable.slice\n", "kubernetes"),
        ("proc/self/cgroup", "0::/machine.slice/libpod-0123abcd.scope/container\n", "podman"),
        ("proc/self/cgroup", "0::/user.slice/user-1000.slice\n", "none"),
    ],
)
def test_kinds(build, name, content, kind):
    build.file(name, content)
    assert build.detect().value("container.kind") == kind


def test_kubernetes_wins_over_the_engine_below_it(build):
    build.file(".dockerenv", "")
    assert build.detect(KUBERNETES_SERVICE_HOST="10.0.0.1").value("container.kind") == "kubernetes"
    assert "10.0.0.1" not in str(build.detect(KUBERNETES_SERVICE_HOST="10.0.0.1").facts)


def test_variable_of_systemd(build):
    assert build.detect(container="podman").value("container.kind") == "podman"
    assert build.detect(container="what a box").value("container.kind") == "none"


@every_row(
    ("release", "wsl"),
    [
        ("5.15.167.4-microsoft-standard-WSL2", "WSL2"),
        ("4.4.0-19041-Microsoft", "WSL1"),
        ("6.1.0-custom-microsoft-kernel", "WSL2"),
        ("6.2.0-39-generic", "no"),
    ],
)
def test_wsl(build, release, wsl):
    build.file("proc/sys/kernel/osrelease", f"{release}\n")
    assert build.detect().value("container.wsl") == wsl


def test_wsl_without_the_door_to_the_gpu(build):
    build.file("proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    assert "/dev/dxg is missing" in build.detect().facts["container.wsl"].source
    build.file("dev/dxg", "")
    assert "/dev/dxg exists" in build.detect().facts["container.wsl"].source


def test_the_way_to_the_gpu_in_wsl(build):
    build.file("proc/sys/kernel/osrelease", "6.18.33.2-microsoft-standard-WSL2\n")
    build.file("dev/dxg", "")
    build.file("usr/lib/wsl/lib/libdxcore.so", "")
    build.file("opt/rocm-7.2.1/lib/librocdxg.so", "")
    # As an editor of Windows leaves it.
    build.file("opt/rocm-7.2.1/share/rocdxg/dids.conf", "# mine\r\n0x73FF,10,3,2\r\n29650,10,1,0 \r\n")
    machine = build.detect()
    assert machine.value("wsl.dxg") is True
    assert machine.value("wsl.dxcore") is True
    assert machine.value("wsl.librocdxg") == ["/opt/rocm-7.2.1/lib/librocdxg.so"]
    assert machine.value("wsl.dids") == {"0x73ff": "gfx1032", "0x73d2": "gfx1010"}
    assert {"gfx1032", "gfx1100", "gfx1201"} <= set(machine.value("wsl.takes"))
    assert "gfx1030" not in machine.value("wsl.takes")


def test_a_wsl_without_the_bridge(build):
    build.file("proc/sys/kernel/osrelease", "6.18.33.2-microsoft-standard-WSL2\n")
    machine = build.detect()
    assert machine.value("wsl.dxg") is False
    assert machine.value("wsl.librocdxg") is None
    assert machine.value("wsl.takes") is None


def test_linux_itself_has_no_facts_of_wsl(build):
    build.file("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
    assert not [name for name in build.detect().facts if name.startswith("wsl.")]


STATUS = """Package: rocm-core
Status: install ok installed
Version: 6.2.0.60200-66~22.04

Package: rocminfo
Status: deinstall ok config-files
Version: 1.0.0.60200-66~22.04

Package: rocs
Status: install ok installed
Version: 4:22.12.3-1

Package: hippo
Status: install ok installed
Version: 1

Package: miopen-hip
Status: install ok installed
Description: not a version
 Version: 9
Version: 3.2.0.60200-66~22.04

Package: linux-firmware
Status: install ok installed
Version: 20220329.git681281e4-0ubuntu3.26
"""


def test_dpkg(build):
    build.file("var/lib/dpkg/status", STATUS)
    found = build.detect()
    assert found.value("packages") == {
        "linux-firmware": "20220329.git681281e4-0ubuntu3.26",
        "miopen-hip": "3.2.0.60200-66~22.04",
        "rocm-core": "6.2.0.60200-66~22.04",
    }
    assert found.facts["packages"].source == "/var/lib/dpkg/status"


def test_dpkg_of_a_desktop_with_everything_on_it(build):
    filler = "Package: foo\nStatus: install ok installed\nVersion: 1\nDescription: " + "x" * 400 + "\n\n"
    build.file("var/lib/dpkg/status", filler * 5000 + STATUS)
    assert len(build.detect().value("packages")) == 3


def test_pacman(build):
    for name in (
        "rocm-core-6.2.4-2",
        "hip-runtime-amd-6.2.4-1",
        "linux-firmware-20241111.b5885ec5-1",
        "zlib-1.3-1",
    ):
        build.file(f"var/lib/pacman/local/{name}/desc", "")
    assert build.detect().value("packages") == {
        "hip-runtime-amd": "6.2.4-1",
        "linux-firmware": "20241111.b5885ec5-1",
        "rocm-core": "6.2.4-2",
    }


def test_rpm_gives_names_alone(build):
    build.file("usr/lib/sysimage/rpm/rpmdb.sqlite", b"SQLite format 3\0")
    build.file("usr/share/licenses/rocm-runtime/LICENSE", "")
    build.file("usr/share/licenses/bash/LICENSE", "")
    build.file("usr/share/doc/rocminfo/README", "")
    found = build.detect()
    assert found.value("packages") == {"rocm-runtime": None, "rocminfo": None}
    assert "names alone" in found.facts["packages"].source


def test_no_package_manager(build):
    found = build.detect()
    assert found.value("packages") is None
    assert "no database of rpm" in found.facts["packages"].source


def test_driver_as_source(build):
    assert build.detect().value("amdgpu.dkms") is None
    build.file("var/lib/dkms/amdgpu/6.12.12-2147987.24.04/source/dkms.conf", "")
    build.link("var/lib/dkms/amdgpu/kernel-6.8.0-49-generic-x86_64", "6.12.12-2147987.24.04/6.8.0")
    assert build.detect().value("amdgpu.dkms") == ["6.12.12-2147987.24.04"]
