"""The recorded KFD and sysfs trees that lie beside the repository, mounted under a built root."""

from __future__ import annotations

import re
import shutil
import tarfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from rocmprobe import gpus

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
KFD = "sys/class/kfd/kfd"
#: Files of a recorded KFD node that detection reads; the thousands of cache descriptions are not copied.
WANTED = re.compile(r"(?:.*/)?nodes/[0-9]+/(?:mem_banks/[0-9]+/)?properties")

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
            skip = shutil.ignore_patterns("caches", "io_links", "p2p_links", "hwmon")
            shutil.copytree(part, build.root / place, ignore=skip, dirs_exist_ok=True)
    return build


def broken_readers(machine):
    return [name for name in machine.facts if name.startswith("errors.")]


@pytest.mark.parametrize(
    ("case", "count", "gfx", "pci_id", "cus", "vram"),
    [
        ("kfd-k8s-gfx90x-mi25-x2", 2, "gfx900", "0x6860", 64, 17163091968),
        ("kfd-k8s-mi210-x8", 8, "gfx90a", "0x740f", 104, None),
        ("kfd-tinygrad-mock-7900xtx", 1, "gfx1100", "0x744c", 96, None),
        ("kfd-DERIVED-rdna1-rx5600xt", 1, "gfx1010", "0x731f", 36, 6425673728),
        ("kfd-DERIVED-rdna1-rx5500xt", 1, "gfx1012", "0x7340", 22, 8573157376),
        ("sysfs-lact-phoenix", 1, "gfx1103", "0x15bf", 12, 4294967296),
        ("sysfs-lact-vangogh", 1, "gfx1033", "0x163f", 8, 8589934592),
    ],
)
def test_kfd(build, case, count, gfx, pci_id, cus, vram):
    machine = mount(build, case).detect()
    assert not broken_readers(machine)
    assert len(machine.gpus) == machine.value("amd.cards") == count
    assert "kfd.unlisted" not in machine.facts
    for gpu in machine.gpus:
        assert (gpu.native_isa.value, gpu.pci_id.value, gpu.cus.value) == (gfx, pci_id, cus)
        assert gpu.vram_bytes.value == vram
        assert gpu.vendor.value == "amd"


@pytest.mark.parametrize(
    ("case", "gfx", "pci_id", "revision", "name", "vram", "driver"),
    [
        ("hd7870", "gfx601", "0x6818", None, "AMD Radeon HD 7800 Series", None, "radeon"),
        ("r7-240", "gfx602", "0x6617", "0x87", "AMD Radeon R7 200 Series", 2147483648, "amdgpu"),
        ("rx580", "gfx803", "0x67df", "0xe7", "AMD Radeon RX 580 Series", 4294967296, "amdgpu"),
        ("vega56", "gfx900", "0x687f", "0xc3", "AMD Radeon RX Vega", 8573157376, "amdgpu"),
        ("rx5500xt", "gfx1012", "0x7340", None, "AMD Navi 14", None, "amdgpu"),
        ("rx6600xt", "gfx1032", "0x73ff", None, "AMD Navi 23", None, "amdgpu"),
        ("rx6900xt", "gfx1030", "0x73bf", "0xc0", "AMD Radeon RX 6900 XT", 17163091968, "amdgpu"),
        ("rx7600s", "gfx1102", "0x7480", None, "AMD Navi 33", None, "amdgpu"),
        ("rx7700s", "gfx1102", "0x7480", None, "AMD Navi 33", None, "amdgpu"),
        ("rx7900xtx", "gfx1100", "0x744c", None, "AMD Navi 31", None, "amdgpu"),
        ("rx9070", "gfx1201", "0x7550", None, "AMD Navi 48", None, "amdgpu"),
    ],
)
def test_sysfs_without_kfd(build, case, gfx, pci_id, revision, name, vram, driver):
    machine = mount(build, f"sysfs-lact-{case}").detect()
    assert not broken_readers(machine)
    (gpu,) = machine.gpus
    assert (gpu.native_isa.value, gpu.pci_id.value, gpu.revision.value) == (gfx, pci_id, revision)
    assert (gpu.name.value, gpu.vram_bytes.value, gpu.driver.value) == (name, vram, driver)
    assert len(machine.value("kfd.unlisted")) == 1


def test_sysfs_tree_with_two_cards(build):
    machine = mount(build, "sysfs-procfs-vega56-0x687f").detect()
    (gpu,) = machine.gpus
    assert (gpu.native_isa.value, gpu.vram_bytes.value, gpu.revision.value) == ("gfx900", 8573157376, "0xc1")


def test_partial_recording_has_no_gpu(build):
    assert mount(build, "sysfs-rdna1-rx5600xt-partial").detect().gpus == ()


def test_kfd_and_sysfs_of_one_card_are_joined(build):
    mount(build, "kfd-DERIVED-rdna1-rx5500xt")
    (gpu,) = mount(build, "sysfs-lact-rx5500xt").detect().gpus
    assert (gpu.native_isa.value, gpu.cus.value, gpu.vram_bytes.value) == ("gfx1012", 22, 8573157376)


def test_mi300x_in_63_partitions_is_8_cards(build):
    archive = FIXTURES / "kfd-k8s-mi300x-cpx-63" / "full-tree.tar.xz"
    if not archive.is_file():
        pytest.skip("kfd-k8s-mi300x-cpx-63 is not among the recorded machines")
    with tarfile.open(archive) as files:
        for member in files:
            content = files.extractfile(member) if WANTED.fullmatch(member.name) else None
            if content:
                build.file(f"{KFD}/{member.name}", content.read())
    machine = build.detect()
    assert not broken_readers(machine)
    assert (len(machine.gpus), machine.value("amd.cards")) == (63, 8)
    assert {(gpu.native_isa.value, gpu.pci_id.value, gpu.cus.value) for gpu in machine.gpus} == {
        ("gfx942", "0x74a1", 38)
    }


def test_version_strings_of_rocm(build):
    folder = FIXTURES / "rocm-info-version-strings"
    recorded = [path for path in sorted(folder.glob("rocm-*")) if path.is_file()]
    if not recorded:
        pytest.skip("no recorded version strings")
    for path in recorded:
        build.file("opt/rocm/.info/version", path.read_bytes())
        assert build.detect().value("rocm.version") == path.read_text().strip()


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
