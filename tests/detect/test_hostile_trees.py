"""Whatever lies where a fact should be, every reader comes back."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import every_row
from tiers import examples

from rocmprobe.detect import detect
from rocmprobe.judge.findings.machine import machine_findings
from rocmprobe.model.results import Machine

NODE = "sys/class/kfd/kfd/topology/nodes/1"
CARD = "sys/bus/pci/devices/0000:03:00.0"
TORCH = "usr/lib/python3/dist-packages/torch"
FILES = (
    f"{NODE}/properties",
    f"{NODE}/gpu_id",
    f"{NODE}/mem_banks/0/properties",
    f"{NODE}/io_links/0/properties",
    "sys/class/kfd/kfd/topology/nodes/0/properties",
    f"{CARD}/vendor",
    f"{CARD}/device",
    f"{CARD}/class",
    f"{CARD}/revision",
    f"{CARD}/mem_info_vram_total",
    f"{CARD}/mem_info_vram_used",
    f"{CARD}/gpu_busy_percent",
    f"{CARD}/pp_dpm_sclk",
    f"{CARD}/pp_dpm_mclk",
    f"{CARD}/pp_dpm_pcie",
    f"{CARD}/current_link_speed",
    f"{CARD}/current_link_width",
    f"{CARD}/vbios_version",
    f"{CARD}/product_name",
    f"{CARD}/current_compute_partition",
    f"{CARD}/hwmon/hwmon0/temp1_input",
    f"{CARD}/hwmon/hwmon0/temp1_label",
    f"{CARD}/hwmon/hwmon0/power1_average",
    f"{CARD}/hwmon/hwmon0/fan1_input",
    f"{CARD}/hwmon/hwmon0/freq1_input",
    "sys/module/amdgpu/version",
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/cmdline",
    "proc/mounts",
    "proc/sys/kernel/osrelease",
    "etc/os-release",
    "etc/group",
    "etc/ld.so.conf",
    "etc/ld.so.cache",
    "var/lib/dpkg/status",
    "var/log/kern.log",
    "var/log/dmesg",
    "dmesg.txt",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/cpu.max",
    "proc/self/cgroup",
    "usr/share/libdrm/amdgpu.ids",
    "opt/rocm/.info/version",
    "opt/rocm/include/hip/hip_version.h",
    "opt/rocm/include/miopen/version.h",
    "opt/rocm/lib/librocblas.so.4",
    "opt/rocm/lib/libMIOpen.so.1",
    "opt/rocm/share/miopen/db/gfx1030_36.HIP.fdb.txt",
    "opt/rocm/lib/rocblas/library/TensileLibrary_gfx1010.co",
    f"{TORCH}/version.py",
    f"{TORCH}/lib/libtorch_hip.so",
    f"{TORCH}/lib/libMIOpen.so",
    f"{TORCH}/lib/rocblas/library/TensileLibrary_lazy_gfx1030.dat",
    f"{TORCH}-1.13.1.dist-info/WHEEL",
)
#: Beginnings that make a reader believe what follows.
HEADS = (
    b"",
    b"simd_count 72\nsimd_per_cu 2\n",
    b"0x1002\n",
    b"0x731f\n",
    b"\x7fELF\x02\x01\x01",
    b"__version__ = '",
    b"gfx_target_version ",
    b"vendor_id 4098\n",
    b"Package: rocm\nVersion: ",
    b"amdgpu 0000:03:00.0: ",
    b"heap_type 1\n",
    b"#define MIOPEN_VERSION_MAJOR ",
    b"ld.so-1.7.0\0",
    b"Linux version 6\n",
    b"NAME=",
)
CONTENT = st.builds(
    bytes.__add__, st.sampled_from(HEADS), st.binary(max_size=60) | st.from_regex(rb"[0-9]{1,40}\n?")
)


def never_broken(machine: Machine) -> None:
    assert not [name for name in machine.facts if name.startswith("errors.")], machine.facts
    machine_findings(machine)


@settings(max_examples=examples(60))
@given(st.dictionaries(st.sampled_from(FILES), CONTENT, max_size=30))
def test_arbitrary_bytes(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as root:
        for name, content in files.items():
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        never_broken(detect(Path(root)))


@every_row("kind", ["folder", "loop", "dangling", "pipe", "huge", "unreadable"])
@pytest.mark.thorough
def test_something_else_in_place_of_every_file(tmp_path: Path, kind: str) -> None:
    if kind == "unreadable" and os.getuid() == 0:
        pytest.skip("root may read everything")
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "folder":
            path.mkdir(exist_ok=True)
        elif kind == "loop":
            path.symlink_to(path.name)
        elif kind == "dangling":
            path.symlink_to("/nowhere")
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "huge":
            with path.open("wb") as file:
                file.truncate(8 << 30)
        else:
            path.touch(mode=0)
    never_broken(detect(tmp_path))


def test_files_in_place_of_every_folder(tmp_path: Path) -> None:
    for folder in (
        "sys/class/kfd",
        "sys/bus/pci",
        "sys/module",
        "opt",
        "usr/lib",
        "proc/driver",
        "etc",
        "var/lib",
    ):
        path = tmp_path / folder
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"no folder")
    never_broken(detect(tmp_path))
    shutil.rmtree(tmp_path / "sys")
    (tmp_path / "sys").symlink_to("sys")
    never_broken(detect(tmp_path))
