"""The recorded KFD and sysfs trees that lie beside the repository, mounted under a built root."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocmprobe.cli import main
from rocmprobe.knowledge import gpus
from rocmprobe.model.results_file import to_json

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
KFD = "sys/class/kfd/kfd"

pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not on this machine")


def mount(build, case):
    """Put a case's fragments (``nodes``, ``topology``, ``kfd``, ``card*``, ``tree``) where they belong."""
    folder = FIXTURES / case
    if not folder.is_dir():
        pytest.skip(f"{case} is not among the recorded machines")
    places = {"nodes": f"{KFD}/topology/nodes", "topology": f"{KFD}/topology", "kfd": KFD, "tree": "."}
    for part in folder.iterdir():
        place = f"sys/class/drm/{part.name}" if part.name.startswith("card") else places.get(part.name)
        if part.is_dir() and place:
            shutil.copytree(part, build.root / place, dirs_exist_ok=True)
    return build


def broken_readers(machine):
    return [name for name in machine.facts if name.startswith("errors.")]


@pytest.mark.parametrize(
    ("case", "count", "gfx", "pci_id", "cus", "simds", "wave", "vram", "atomics"),
    [
        ("kfd-k8s-gfx90x-mi25-x2", 2, "gfx900", "0x6860", 64, 256, 64, 17163091968, None),
        ("kfd-k8s-mi210-x8", 8, "gfx90a", "0x740f", 104, 416, 64, None, True),
        ("kfd-tinygrad-mock-7900xtx", 1, "gfx1100", "0x744c", 96, 192, 32, None, None),
        ("kfd-DERIVED-rdna1-rx5600xt", 1, "gfx1010", "0x731f", 36, 72, 32, 6425673728, True),
        ("kfd-DERIVED-rdna1-rx5500xt", 1, "gfx1012", "0x7340", 22, 44, 32, 8573157376, True),
        ("sysfs-lact-phoenix", 1, "gfx1103", "0x15bf", 12, 24, 32, 4294967296, True),
        ("sysfs-lact-vangogh", 1, "gfx1033", "0x163f", 8, 16, 32, 8589934592, True),
    ],
)
def test_kfd(build, case, count, gfx, pci_id, cus, simds, wave, vram, atomics):
    machine = mount(build, case).detect()
    assert not broken_readers(machine)
    assert len(machine.gpus) == machine.value("amd.cards") == count
    assert "kfd.unlisted" not in machine.facts
    for gpu in machine.gpus:
        assert (gpu.native_isa.value, gpu.pci_id.value, gpu.cus.value) == (gfx, pci_id, cus)
        assert (gpu.simds.value, gpu.wave_size.value, gpu.pcie_atomics.value) == (simds, wave, atomics)
        assert gpu.vram_bytes.value == vram
        assert gpu.vendor.value == "amd"
        assert gpu.apu.value is (case in ("sysfs-lact-phoenix", "sysfs-lact-vangogh"))
        assert gpu.partition.value is None


#: Edge, junction and memory temperature; fan; power; clocks; load; VRAM in use; its maker; link; firmware.
STATES = {
    "sysfs-lact-hd7870": (27, None, None, None, None, 300, None, None, None, None, "8.0 GT/s x1", None),
    "sysfs-lact-r7-240": (
        52, None, None, None, None, 400, 1150, None, 495321088, None, "5.0 GT/s x4 (best 8.0 GT/s x8)",
        "13-C86901_216",
    ),
    "sysfs-lact-rx580": (
        44, None, None, 595, 41.045, 900, 1750, 11, 536870912, None, "8.0 GT/s x16", "113-1E3871U-O4C",
    ),
    "sysfs-lact-vega56": (
        38, 38, 39, 5, 8, 852, 167, 0, 16613376, "hynix", "8.0 GT/s x16 (best 8.0 GT/s x16)",
        "115-D050PIL-100",
    ),
    "sysfs-procfs-vega56-0x687f": (
        None, None, None, None, None, 852, 167, 4, 1490378752, "samsung", "8.0 GT/s x16 (best 8.0 GT/s x16)",
        "115-D050PIL-100",
    ),
    "sysfs-lact-rx5500xt": (48, 48, 0, 0, 16, 0, 875, 0, None, None, "16.0 GT/s x16", "xxx-xxx-xxx"),
    "sysfs-lact-rx6600xt": (35, 35, 36, 0, 3, 0, 96, 0, None, None, "16.0 GT/s x16", "113-23L86HMD2-D02"),
    "sysfs-lact-rx6900xt": (
        56, 59, 54, 0, 36, 500, 1000, 3, 668274688, "samsung", "16.0 GT/s x16 (best 16.0 GT/s x16)",
        "113-D4121EXT-CO1",
    ),
    "sysfs-lact-rx7600s": (53, 54, 60, 0, 1, 0, 96, 0, None, "samsung", "16.0 GT/s x8", "113-BRT112125.001"),
    "sysfs-lact-rx7700s": (34, 34, 42, 0, 1, 0, 96, 0, None, None, "16.0 GT/s x8", "113-BRT125778.001"),
    "sysfs-lact-rx7900xtx": (53, 61, 68, 0, 68, 31, 1249, 3, None, None, "16.0 GT/s x16", "113-D70401XT-N11"),
    "sysfs-lact-rx9070": (
        48, 52, 72, 1944, 49, 789, 1124, 25, None, "hynix", "32.0 GT/s x16", "113-2E490TX-US2",
    ),
    "sysfs-lact-phoenix": (
        25, None, None, None, 3.103, 800, 400, 0, 1272893440, None, "16.0 GT/s x16 (best 16.0 GT/s x16)",
        "113-PHXGENERIC-001",
    ),
    "sysfs-lact-vangogh": (
        56, None, None, None, 3.218, 200, 687, 0, None, None, "8.0 GT/s x16", "113-AMDAerithJ-005",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STATES)
def test_the_state_of_a_recorded_gpu(build, case):
    (gpu,) = mount(build, case).detect().gpus
    state = (
        gpu.temperature_edge_c, gpu.temperature_junction_c, gpu.temperature_memory_c, gpu.fan_rpm,
        gpu.power_w, gpu.core_clock_mhz, gpu.memory_clock_mhz, gpu.busy_percent, gpu.vram_used_bytes,
        gpu.vram_vendor, gpu.pcie_link, gpu.vbios,
    )  # fmt: skip
    assert tuple(fact.value for fact in state) == STATES[case]
    assert all(fact.source for fact in vars(gpu).values())


def test_chip_ids_of_recorded_rocminfo_agree_with_the_table():
    """Recorded runtimes name chip and ISA; an override makes them differ, so the most frequent ISA counts."""
    manifest = FIXTURES / "rocminfo-corpus" / "MANIFEST.tsv"
    if not manifest.is_file():
        pytest.skip("the rocminfo corpus is not among the recorded machines")
    seen = defaultdict(Counter)
    for line in manifest.read_text().splitlines()[1:]:
        for agent in line.split("\t")[4].split(";"):
            fields = [field.strip() for field in agent.split("|")]
            if fields[0].startswith("gfx") and len(fields) > 2 and fields[2]:
                seen[fields[2]][fields[0]] += 1
    certain = {chip: counts for chip, counts in seen.items() if sum(counts.values()) > 2}
    wrong = {chip: dict(counts) for chip, counts in certain.items() if gpus.gfx_of(chip) not in counts}
    assert not wrong


def test_every_rdna1_device_of_the_kernel_has_its_target():
    listed = FIXTURES / "lspci-nn-rdna1" / "rdna1-pci-ids.tsv"
    if not listed.is_file():
        pytest.skip("lspci-nn-rdna1 is not among the recorded machines")
    for line in listed.read_text().splitlines()[1:]:
        _, gfx, devices, _ = line.split("\t")
        for device in re.findall(r"\b[0-9A-F]{4}\b", devices.partition("(")[0]):
            assert gpus.gfx_of(device) == gfx


@pytest.mark.parametrize(
    ("case", "stack", "command"),
    [
        ("kfd-DERIVED-rdna1-rx5600xt", "amd-stable-10.1", "torch[device-gfx1010]==2.14.0+rocm10.1.0"),
        ("kfd-DERIVED-rdna1-rx5500xt", "amd-stable-7.14", "torch[device-gfx1012]==2.12.0+rocm7.14.1"),
        ("kfd-k8s-gfx90x-mi25-x2", "official-rocm6.3", "torch==2.7.1+rocm6.3"),
        ("kfd-k8s-mi210-x8", "amd-stable-10.1", "torch[device-gfx90a]"),
        ("kfd-tinygrad-mock-7900xtx", "amd-stable-10.1", "torch[device-gfx1100]"),
        ("sysfs-lact-phoenix", "amd-stable-10.1", "torch[device-gfx1103]"),
        ("sysfs-lact-rx580", "rocm-gfx803", "ghcr.io/schaka/rocm-migraphx-ort-torch-builder:rocm7.14-gfx803"),
        ("sysfs-lact-rx6600xt", "official-rocm7.2", "torch==2.14.1+rocm7.2"),
        ("sysfs-lact-rx9070", "amd-stable-10.1", "torch[device-gfx1201]"),
        ("sysfs-lact-vega56", "official-rocm6.3", "torch==2.7.1+rocm6.3"),
    ],
)
def test_the_first_stack_of_install(build, tmp_path: Path, case: str, stack: str, command: str) -> None:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(to_json(mount(build, case).detect())))
    done = CliRunner().invoke(main, ["install", "--facts", str(path), "--json"])
    assert done.exit_code == 0, done.output
    first = json.loads(done.output)["stacks"][0]
    assert first["stack"] == stack
    assert command in json.dumps(first["steps"])
