"""Facts of the system, ROCm and torch, and the promise that nothing is raised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rows import every_row

from rocmprobe.detect import detect, machine
from rocmprobe.detect.stack import torch_build
from rocmprobe.detect.tree import LIMIT, Tree
from rocmprobe.model.results import Fact

DIST = "usr/lib/python3/dist-packages/torch"
WHEEL = """from typing import Optional
__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '1.13.1+rocm5.2'
debug = False
cuda: Optional[str] = None
git_version = '49444c3e546bf240bed24a101e747422d1f8a0ee'
hip: Optional[str] = '5.2.21151-afdc89f8'
"""


def test_system(build):
    build.file("etc/os-release", 'ID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.3 LTS"\n')
    build.file("proc/sys/kernel/osrelease", "6.2.0-39-generic\n")
    model = "AMD Ryzen 5 3600 6-Core Processor"
    thread = f"processor\t: {{0}}\nmodel name\t: {model}\nphysical id\t: 0\ncore id\t\t: {{1}}\n\n"
    build.file("proc/cpuinfo", "".join(thread.format(n, n % 6) for n in range(12)))
    build.file("proc/meminfo", "MemTotal:       16316412 kB\nMemAvailable: 9 kB\nSwapTotal: 2 kB\n")
    build.file(
        "proc/cmdline", "root=UUID=1234-5678 ro nomodeset amdgpu.ppfeaturemask=0xffffffff iommu=pt quiet"
    )
    build.file("sys/module/amdgpu/version", "6.12.12\n")
    found = build.detect()
    assert found.value("os.name") == "Ubuntu 22.04.3 LTS"
    assert (found.value("os.id"), found.value("os.version")) == ("ubuntu", "22.04")
    assert found.value("kernel.release") == "6.2.0-39-generic"
    assert found.value("cpu.name") == model
    assert found.value("cpu.cores") == 6
    assert found.value("memory.bytes") == 16316412 * 1024
    assert (found.value("memory.available_bytes"), found.value("memory.swap_bytes")) == (9 * 1024, 2 * 1024)
    assert found.value("kernel.parameters") == ["nomodeset", "amdgpu.ppfeaturemask=0xffffffff", "iommu=pt"]
    assert (found.value("amdgpu.version"), found.value("amdgpu.origin")) == ("6.12.12", "dkms")


def test_drivers_without_a_version(build):
    assert "not loaded" in build.detect().facts["amdgpu.version"].source
    build.file("sys/module/amdgpu/refcnt", "1")
    assert "part of the kernel" in build.detect().facts["amdgpu.version"].source
    assert build.detect().value("amdgpu.origin") == "kernel"


def test_kfd_device_of_a_recorded_tree(build):
    assert build.detect().facts["kfd.device"] == Fact(None, "/dev: not in the recorded tree")
    build.file("dev/null", "")
    assert build.detect().value("kfd.device") == "absent"
    build.file("dev/kfd", "").chmod(0)
    assert build.detect().value("kfd.device") == "present"


def test_limits_of_control_groups(build):
    build.file("proc/self/cgroup", "0::/user.slice/job\n")
    build.file("sys/fs/cgroup/user.slice/memory.max", "4294967296\n")
    build.file("sys/fs/cgroup/user.slice/job/memory.max", "max\n")
    build.file("sys/fs/cgroup/user.slice/job/cpu.max", "150000 100000\n")
    found = build.detect()
    assert (found.value("memory.limit_bytes"), found.value("cpu.quota")) == (4 << 30, 1.5)
    assert "user.slice" not in found.facts["memory.limit_bytes"].source


def test_limits_of_the_first_version_of_control_groups_in_a_container(build):
    build.file("proc/self/cgroup", "4:memory:/docker/0123abcd\n1:cpu,cpuacct:/docker/0123abcd\n")
    build.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n")
    build.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    build.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    found = build.detect()
    assert (found.value("memory.limit_bytes"), found.value("cpu.quota")) == (1 << 30, None)


def test_no_limits(build):
    build.file("sys/fs/cgroup/memory.max", "max\n")
    build.file("sys/fs/cgroup/cpu.max", "max 100000\n")
    found = build.detect()
    assert (found.value("memory.limit_bytes"), found.value("cpu.quota")) == (None, None)


def test_rocm_installs_behind_absolute_links(build):
    build.file("opt/rocm-5.2.0/.info/version", "5.2.0-65\n")
    build.file("opt/rocm-6.2.0/.info/version", "6.2.0-66\n")
    version = "#define {0}_MAJOR {1}\n#define {0}_MINOR {2}\n#define {0}_PATCH {3}\n"
    build.file("opt/rocm-6.2.0/include/hip/hip_version.h", version.format("HIP_VERSION", 6, 2, 41133))
    build.file("opt/rocm-6.2.0/include/miopen/version.h", version.format("MIOPEN_VERSION", 3, 2, 0))
    build.link("opt/rocm", "/etc/alternatives/rocm")
    build.link("etc/alternatives/rocm", "/opt/rocm-6.2.0")
    found = build.detect()
    assert found.value("rocm.version") == "6.2.0-66"
    assert found.value("rocm.installs") == {"/opt/rocm-5.2.0": "5.2.0-65", "/opt/rocm-6.2.0": "6.2.0-66"}
    assert found.value("hip.version") == "6.2.41133"
    assert found.value("miopen.version") == "3.2.0"
    assert found.facts["miopen.version"].source == "/opt/rocm/include/miopen/version.h"


def test_rocm_without_the_link(build):
    build.file("opt/rocm-6.2.0/.info/version", "6.2.0-66\n")
    found = build.detect()
    assert found.value("rocm.version") == "6.2.0-66"
    assert "does not lead to it" in found.facts["rocm.version"].source
    build.file("opt/rocm-5.2.0/.info/version", "5.2.0-65\n")
    found = build.detect()
    assert found.value("rocm.version") is None
    assert "/opt/rocm-5.2.0, /opt/rocm-6.2.0" in found.facts["rocm.version"].source


@every_row(
    ("text", "version", "kind"),
    [
        (
            "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n",
            "2.13.0+cpu",
            "cpu",
        ),
        ('__version__ = "2.1.0"\ncuda = "12.1"\nhip = None\n', "2.1.0", "cuda"),
        ("__version__ = '2.9.0a0'\nhip = '7.0.51831'\ncuda = None\n", "2.9.0a0", "rocm"),
        ("\x00\xff rubbish", None, None),
    ],
)
def test_torch_kinds(build, text, version, kind):
    build.file(f"{DIST}/version.py", text)
    found = build.detect()
    assert (found.value("torch.version"), found.value("torch.kind")) == (version, kind)


def test_no_torch_in_a_recorded_tree(build):
    found = build.detect()
    for name in ("torch.version", "torch.hip", "torch.cuda", "torch.kind", "torch.path", "python.version"):
        assert found.facts[name].value is None
        assert found.facts[name].source == "not looked up: --root"


@every_row("content", [None, "raise SystemExit('torch was imported')"])
def test_own_torch_that_is_broken(tmp_path, monkeypatch, content):
    """A folder without __init__.py is no torch; one that would fail on import is read all the same."""
    (tmp_path / "torch").mkdir()
    if content:
        (tmp_path / "torch" / "__init__.py").write_text(content)
        (tmp_path / "torch" / "version.py").write_text(WHEEL)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    facts = torch_build.read_build(Tree(Path("/"))).facts
    if content:
        assert facts["torch.version"].value == "1.13.1+rocm5.2"
    else:
        assert facts["torch.version"].value is None
        assert "left over from a removed package" in facts["torch.version"].source
    assert str(tmp_path) not in str(facts)


def test_a_recorded_tree_does_not_get_this_environment(build, monkeypatch):
    build.rx_5600_xt()
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "10.3.0")
    found = detect(build.root)
    assert found.gpus[0].effective_isa.value == "gfx1010"
    assert found.variables == {}


def test_absolute_links_stay_inside_the_tree(build, tmp_path):
    secret = tmp_path / "outside"
    secret.write_text("PRETTY_NAME=outside\n")
    build.link("etc/os-release", str(secret))
    assert build.detect().value("os.name") is None
    (build.root / "etc/os-release").unlink()
    build.link("etc/os-release", "../../../../../../../../.." + str(secret))
    assert build.detect().value("os.name") is None


def test_huge_file_is_read_in_part(build):
    build.file("proc/meminfo", b"MemTotal: 1024 kB\n" + b"x" * (2 * LIMIT))
    assert len(Tree(build.root).read("/proc/meminfo")) == LIMIT
    assert build.detect().value("memory.bytes") == 1024 * 1024


def test_a_broken_reader_costs_only_its_own_facts(build, monkeypatch):
    build.rx_5600_xt()

    def broken(*_):
        raise RuntimeError("no such luck")

    for name in ("system", "rocm"):
        monkeypatch.setattr(getattr(machine, name), "read_facts", broken)
    found = build.detect()
    assert found.value("errors.system") == "RuntimeError: no such luck"
    assert found.value("errors.rocm") == "RuntimeError: no such luck"
    assert found.gpus[0].native_isa.value == "gfx1010"
    assert "torch.version" in found.facts


@every_row("place", ["missing", "file"])
def test_root_that_is_no_folder(tmp_path, place):
    (tmp_path / "file").write_text("")
    found = detect(tmp_path / place, {})
    assert found.gpus == ()
    assert not [name for name in found.facts if name.startswith("errors.")]


def test_detect_imports_no_torch_and_little_else():
    code = (
        "import sys; from rocmprobe.detect import detect; machine = detect(); "
        "assert machine.facts['python.version'].value; "
        "print([m for m in ('torch', 'numpy', 'pytest', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
