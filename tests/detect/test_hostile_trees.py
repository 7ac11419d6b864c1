"""Whatever lies where a fact should be, every reader comes back."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine_trees import NODES, RX_5600_XT, Build
from stack_trees import SITE, TORCH, bundle, torch_hip
from tiers import examples

from rocmprobe.judge.findings.machine import machine_findings
from rocmprobe.model.results import Machine
from rocmprobe.model.results_file import from_json, to_json

NODE = f"{NODES}/1"
CARD = "sys/bus/pci/devices/0000:0b:00.0"
OF_GPUS = (
    f"{NODES}/0/properties", f"{NODES}/x/properties", f"{NODE}/properties", f"{NODE}/gpu_id",
    f"{NODE}/mem_banks/0/properties", f"{NODE}/io_links/0/properties", f"{NODE}/io_links/x/properties",
    *(f"{CARD}/{name}" for name in (
        "vendor", "device", "class", "revision", "uevent", "product_name", "mem_info_vram_total",
        "mem_info_vram_used", "mem_info_vram_vendor", "gpu_busy_percent", "pp_dpm_sclk", "pp_dpm_mclk",
        "pp_dpm_pcie", "current_link_speed", "current_link_width", "max_link_speed", "vbios_version",
        "current_compute_partition", "power/runtime_status", "hwmon/hwmon0/temp1_input",
        "hwmon/hwmon0/temp1_label", "hwmon/hwmon0/power1_average", "hwmon/hwmon0/fan1_input",
        "hwmon/hwmon0/freq1_input",
    )),
    "sys/class/drm/card0/device/uevent", "sys/class/drm/card0/device/mem_info_vram_total",
    "usr/share/libdrm/amdgpu.ids",
)  # fmt: skip
OF_THE_SYSTEM = (
    "sys/module/amdgpu/version", "proc/cpuinfo", "proc/meminfo", "proc/cmdline", "proc/mounts",
    "proc/self/cgroup", "proc/sys/kernel/osrelease", "etc/os-release", "etc/group", "etc/ld.so.conf",
    "etc/ld.so.conf.d/rocm.conf", "etc/ld.so.cache", "run/systemd/container", "var/lib/dpkg/status",
    "var/log/kern.log", "var/log/dmesg", "dmesg.txt", "sys/fs/cgroup/memory.max", "sys/fs/cgroup/cpu.max",
    "dev/kfd",
)  # fmt: skip
OF_THE_STACK = (
    "opt/rocm/.info/version", "opt/rocm/include/hip/hip_version.h", "opt/rocm/include/miopen/version.h",
    "opt/rocm/lib/libMIOpen.so.1", "opt/rocm/lib/librocblas.so.4",
    "opt/rocm/lib/rocblas/library/TensileLibrary_gfx1010.co",
    "opt/rocm/share/miopen/db/gfx1030_36.HIP.fdb.txt",
    "opt/rocm/share/miopen/db/gfx1030_" + "9" * 200 + ".db", "usr/lib/libamdhip64.so.5.2.21153",
    "usr/lib/librocblas.so.0", "home/x/.cache/miopen/x", f"{TORCH}/version.py",
    f"{TORCH}/lib/libtorch_hip.so", f"{TORCH}/lib/libMIOpen.so.1", f"{TORCH}/lib/librocblas.so.0",
    f"{TORCH}/lib/rocblas/library/TensileLibrary_lazy_gfx1030.dat", f"{SITE}/torch-2.4.0.dist-info/WHEEL",
    f"{SITE}/torch-2.4.0.dist-info/INSTALLER",
)  # fmt: skip
FILES = (*OF_GPUS, *OF_THE_SYSTEM, *OF_THE_STACK)
#: Beginnings that make a reader believe what follows.
HEADS = (
    b"", b"simd_count 72\nsimd_per_cu 2\n", b"0x1002\n", b"0x731f\n", b"gfx_target_version ",
    b"vendor_id 4098\n", b"heap_type 1\n", b"0: 0Mhz *\n", b"1: 8.0GT/s, x8 *\n", b"16.0 GT/s PCIe\n",
    b"731F,\tEE,\t", b"Package: rocm\nVersion: ", b"amdgpu 0000:03:00.0: ", b"#define MIOPEN_VERSION_MAJOR ",
    b"ld.so-1.7.0\0", b"x\0/opt/rocm/lib/libMIOpen.so.1\0", b"Linux version 6\n", b"NAME=",
    b"tmpfs / tmpfs\nx /home/x nfs\n", b"\x7fELF\x02\x01\x01", b"__version__ = '",
    b"__version__ = '2.4.0+rocm6.1'\nhip = '6.1.40091'\n",
    b"include ld.so.conf.d/*.conf\ninclude ld.so.conf\n/opt/rocm/lib\n/../..\n",
    torch_hip(bundle(["gfx1030"]), needed=["libMIOpen.so.1"], runpath="$ORIGIN:/opt/rocm/lib"),
)  # fmt: skip
NODE_LINES = st.builds(
    "{} {}\n".format,
    st.sampled_from(["flags", "node_to", "type", "size_in_bytes", "heap_type", *RX_5600_XT]),
    st.integers(-(2**70), 2**70) | st.text(max_size=5),
)
CONTENT = st.one_of(
    st.builds(
        bytes.__add__,
        st.sampled_from(HEADS),
        st.binary(max_size=200) | st.from_regex(rb"-?[0-9]{1,5000}\n?|0x[0-9a-f]{1,40}"),
    ),
    st.lists(NODE_LINES, max_size=12).map(lambda lines: "".join(lines).encode("utf-8", "replace")),
    # The targets of links.
    st.sampled_from(["loop", "/", "/nowhere", "../.."]),
)
VARIABLES = ("LD_LIBRARY_PATH", "MIOPEN_USER_DB_PATH", "MIOPEN_SYSTEM_DB_PATH", "ROCBLAS_TENSILE_LIBPATH",
             "HSA_OVERRIDE_GFX_VERSION")  # fmt: skip


def never_broken(machine: Machine) -> None:
    assert not [name for name in machine.facts if name.startswith("errors.")], machine.facts
    assert all(fact.source for gpu in machine.gpus for fact in vars(gpu).values())
    assert from_json(Machine, to_json(machine)) == machine
    machine_findings(machine)


@pytest.mark.parametrize("files", [OF_GPUS, OF_THE_SYSTEM, OF_THE_STACK], ids=["gpus", "system", "stack"])
@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_arbitrary_content(tmp_path_factory: pytest.TempPathFactory, files: tuple[str, ...], data) -> None:
    build = Build(tmp_path_factory.mktemp("any") / "root")
    build.rx_5600_xt()
    for name, content in data.draw(st.dictionaries(st.sampled_from(files), CONTENT, max_size=12)).items():
        (build.root / name).unlink(missing_ok=True)
        if isinstance(content, bytes):
            build.file(name, content)
        else:
            build.link(name, name.rpartition("/")[2] if content == "loop" else content)
    value = data.draw(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20))
    never_broken(build.detect(HOME="/home/x", **dict.fromkeys(VARIABLES, value)))


@pytest.mark.parametrize("kind", ["folder", "loop", "dangling", "pipe", "huge", "unreadable"])
def test_something_else_in_place_of_every_file(build: Build, kind: str) -> None:
    if kind == "unreadable" and os.getuid() == 0:
        pytest.skip("root may read everything")
    for name in FILES:
        path = build.root / name
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
    never_broken(build.detect(HOME="/home/x"))


def test_files_in_place_of_every_folder(build: Build) -> None:
    for folder in ("sys/class/kfd", "sys/bus/pci", "sys/module", "opt", "usr/lib", "proc/driver", "etc",
                   "var/lib", "home/x/.cache"):  # fmt: skip
        build.file(folder, b"no folder")
    never_broken(build.detect(HOME="/home/x", MIOPEN_SYSTEM_DB_PATH="/home/x/.cache/a"))
    shutil.rmtree(build.root / "sys")
    build.link("sys", "sys")
    never_broken(build.detect())
