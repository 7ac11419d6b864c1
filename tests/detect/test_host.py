"""Facts of the host: access to device nodes, containers, WSL and packages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from machine_trees import tree

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


@pytest.mark.parametrize(("owner", "mode"), [(0, 0o660), (109, 0o600)])
def test_no_group_helps(facts, owner, mode):
    assert facts([], owner, mode=mode)["access.groups_needed"].value == []


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


MODEL = "AMD Ryzen 5 3600 6-Core Processor"
THREAD = f"processor\t: {{0}}\nmodel name\t: {MODEL}\nphysical id\t: 0\ncore id\t\t: {{1}}\n\n"
VERSION = "#define {0}_MAJOR {1}\n#define {0}_MINOR {2}\n#define {0}_PATCH {3}\n"
DIST = "usr/lib/python3/dist-packages/torch"
RELEASE = "proc/sys/kernel/osrelease"
WSL2 = {RELEASE: "6.18.33.2-microsoft-standard-WSL2\n"}
CGROUP = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "environ", "facts", "sources"),
    [
        # The system.
        tree("system",
             {"etc/os-release": 'ID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.3 LTS"\n',
              RELEASE: "6.2.0-39-generic\n",
              "proc/cmdline": "root=UUID=1-5 ro nomodeset amdgpu.ppfeaturemask=0xffffffff iommu=pt quiet"},
             {"os.name": "Ubuntu 22.04.3 LTS", "os.id": "ubuntu", "os.version": "22.04",
              "kernel.release": "6.2.0-39-generic",
              "kernel.parameters": ["nomodeset", "amdgpu.ppfeaturemask=0xffffffff", "iommu=pt"]}),
        tree("processor and memory",
             {"proc/cpuinfo": "".join(THREAD.format(n, n % 6) for n in range(12)),
              "proc/meminfo": "MemTotal:       16316412 kB\nMemAvailable: 9 kB\nSwapTotal: 2 kB\n"},
             {"cpu.name": MODEL, "cpu.cores": 6, "memory.bytes": 16316412 * 1024,
              "memory.available_bytes": 9 * 1024, "memory.swap_bytes": 2 * 1024}),
        tree("a driver of a package", {"sys/module/amdgpu/version": "6.12.12\n"},
             {"amdgpu.version": "6.12.12", "amdgpu.origin": "dkms", "amdgpu.dkms": None}),
        tree("a driver of the kernel", {"sys/module/amdgpu/refcnt": "1"}, {"amdgpu.origin": "kernel"},
             {"amdgpu.version": "part of the kernel"}),
        tree("a driver as source",
             {"var/lib/dkms/amdgpu/6.12.12-2147987.24.04/source/dkms.conf": "",
              "var/lib/dkms/amdgpu/kernel-6.8.0-49-generic-x86_64": "-> 6.12.12-2147987.24.04/6.8.0"},
             {"amdgpu.dkms": ["6.12.12-2147987.24.04"]}),
        tree("no files", {}, {"kfd.device": None, "packages": None},
             {"kfd.device": "/dev: not in the recorded tree", "amdgpu.version": "not loaded",
              "packages": "no database of rpm"}),
        tree("device nodes", {"dev/dri/renderD129": "", "dev/dri/card0": ""},
             {"kfd.device": "absent",
              "access.nodes": [{"node": "/dev/dri/renderD129", "group": None, "mode": None, "usable": None}]},
             {"access.groups": "not looked up: --root"}),
        tree("a node of KFD", {"dev/kfd": ""}, {"kfd.device": "present"}),
        # Limits.
        tree("limits of control groups",
             {"proc/self/cgroup": "0::/user.slice/job\n", f"{CGROUP}/user.slice/memory.max": "4294967296\n",
              f"{CGROUP}/user.slice/job/memory.max": "max\n",
              f"{CGROUP}/user.slice/job/cpu.max": "150000 100000\n"},
             {"memory.limit_bytes": 4 << 30, "cpu.quota": 1.5}, {"memory.limit_bytes": "control group"}),
        tree("limits of the first version in a container",
             {"proc/self/cgroup": "4:memory:/docker/0123abcd\n1:cpu,cpuacct:/docker/0123abcd\n",
              f"{CGROUP}/memory/memory.limit_in_bytes": "1073741824\n",
              f"{CGROUP}/cpu/cpu.cfs_quota_us": "-1\n", f"{CGROUP}/cpu/cpu.cfs_period_us": "100000\n"},
             {"memory.limit_bytes": 1 << 30, "cpu.quota": None}),
        tree("no limits", {f"{CGROUP}/memory.max": "max\n", f"{CGROUP}/cpu.max": "max 100000\n"},
             {"memory.limit_bytes": None, "cpu.quota": None}),
        # Containers.
        *(tree(kind, {name: content}, {"container.kind": kind}) for name, content, kind in (
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
        )),
        tree("Kubernetes before the engine below it", {".dockerenv": ""}, {"container.kind": "kubernetes"},
             KUBERNETES_SERVICE_HOST="10.0.0.1"),
        tree("the variable of systemd", {}, {"container.kind": "podman"}, container="podman"),
        tree("another variable", {}, {"container.kind": "none"}, container="what a box"),
        # WSL.
        *(tree(wsl, {RELEASE: f"{release}\n"}, {"container.wsl": wsl}) for release, wsl in (
            ("5.15.167.4-microsoft-standard-WSL2", "WSL2"), ("4.4.0-19041-Microsoft", "WSL1"),
            ("6.1.0-custom-microsoft-kernel", "WSL2"), ("6.2.0-39-generic", "no"),
        )),
        tree("a WSL without the bridge", WSL2,
             {"wsl.dxg": False, "wsl.librocdxg": None, "wsl.takes": None},
             {"container.wsl": "/dev/dxg is missing"}),
        tree("the way to the GPU in WSL",
             {**WSL2, "dev/dxg": "", "usr/lib/wsl/lib/libdxcore.so": "",
              "opt/rocm-7.2.1/lib/librocdxg.so": "",
              # As an editor of Windows leaves it.
              "opt/rocm-7.2.1/share/rocdxg/dids.conf": "# mine\r\n0x73FF,10,3,2\r\n29650,10,1,0 \r\n"},
             {"wsl.dxg": True, "wsl.dxcore": True, "wsl.librocdxg": ["/opt/rocm-7.2.1/lib/librocdxg.so"],
              "wsl.dids": {"0x73ff": "gfx1032", "0x73d2": "gfx1010"}},
             {"container.wsl": "/dev/dxg exists"}),
        # Packages.
        tree("dpkg", {"var/lib/dpkg/status": STATUS},
             {"packages": {"linux-firmware": "20220329.git681281e4-0ubuntu3.26",
                           "miopen-hip": "3.2.0.60200-66~22.04", "rocm-core": "6.2.0.60200-66~22.04"}},
             {"packages": "/var/lib/dpkg/status"}),
        tree("pacman",
             {f"var/lib/pacman/local/{name}/desc": "" for name in (
                 "rocm-core-6.2.4-2", "hip-runtime-amd-6.2.4-1", "linux-firmware-20241111.b5885ec5-1",
                 "zlib-1.3-1")},
             {"packages": {"hip-runtime-amd": "6.2.4-1", "linux-firmware": "20241111.b5885ec5-1",
                           "rocm-core": "6.2.4-2"}}),
        tree("rpm gives names only",
             {"usr/lib/sysimage/rpm/rpmdb.sqlite": b"SQLite format 3\0",
              "usr/share/licenses/rocm-runtime/LICENSE": "", "usr/share/licenses/bash/LICENSE": "",
              "usr/share/doc/rocminfo/README": ""},
             {"packages": {"rocm-runtime": None, "rocminfo": None}}, {"packages": "names alone"}),
        # ROCm and torch.
        tree("a ROCm behind absolute links",
             {"opt/rocm-5.2.0/.info/version": "5.2.0-65\n", "opt/rocm-6.2.0/.info/version": "6.2.0-66\n",
              "opt/rocm-6.2.0/include/hip/hip_version.h": VERSION.format("HIP_VERSION", 6, 2, 41133),
              "opt/rocm-6.2.0/include/miopen/version.h": VERSION.format("MIOPEN_VERSION", 3, 2, 0),
              "opt/rocm": "-> /etc/alternatives/rocm", "etc/alternatives/rocm": "-> /opt/rocm-6.2.0"},
             {"rocm.version": "6.2.0-66", "hip.version": "6.2.41133", "miopen.version": "3.2.0",
              "rocm.installs": {"/opt/rocm-5.2.0": "5.2.0-65", "/opt/rocm-6.2.0": "6.2.0-66"}},
             {"miopen.version": "/opt/rocm/include/miopen/version.h"}),
        tree("a ROCm without the link", {"opt/rocm-6.2.0/.info/version": "6.2.0-66\n"},
             {"rocm.version": "6.2.0-66"}, {"rocm.version": "does not lead to it"}),
        tree("two without the link",
             {"opt/rocm-6.2.0/.info/version": "6.2.0-66\n", "opt/rocm-5.2.0/.info/version": "5.2.0-65\n"},
             {"rocm.version": None}, {"rocm.version": "/opt/rocm-5.2.0, /opt/rocm-6.2.0"}),
        *(tree(f"torch for {kind}", {f"{DIST}/version.py": text},
               {"torch.version": version, "torch.kind": kind}) for text, version, kind in (
            ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n",
             "2.13.0+cpu", "cpu"),
            ('__version__ = "2.1.0"\ncuda = "12.1"\nhip = None\n', "2.1.0", "cuda"),
            ("__version__ = '2.9.0a0'\nhip = '7.0.51831'\ncuda = None\n", "2.9.0a0", "rocm"),
            ("\x00\xff rubbish", None, None),
        )),
    ],
)  # fmt: skip
def test_facts_from_files(build, files, environ, facts, sources):
    build.files(files)
    machine = build.detect(**environ)
    assert {name: machine.value(name) for name in facts} == facts
    assert [name for name, words in sources.items() if words not in machine.facts[name].source] == []
    # What may name a person or a host.
    assert not [
        fact for fact in machine.facts.values() if "user.slice" in str(fact) or "10.0.0.1" in str(fact)
    ]


def test_chips_that_wsl_supports(build):
    build.files({**WSL2, "dev/dxg": "", "opt/rocm-7.2.1/lib/librocdxg.so": ""})
    build.file("opt/rocm-7.2.1/share/rocdxg/dids.conf", "0x73FF,10,3,2\n")
    supported = set(build.detect().value("wsl.takes"))
    assert {"gfx1032", "gfx1100", "gfx1201"} <= supported
    assert "gfx1030" not in supported


def test_dpkg_of_a_desktop_with_everything_on_it(build):
    filler = "Package: foo\nStatus: install ok installed\nVersion: 1\nDescription: " + "x" * 400 + "\n\n"
    build.file("var/lib/dpkg/status", filler * 5000 + STATUS)
    assert len(build.detect().value("packages")) == 3
