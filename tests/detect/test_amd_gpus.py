"""AMD GPUs from KFD, PCI and the environment."""

from __future__ import annotations

import os
import threading

import pytest
from machine_trees import CPU_NODE, NODES, RX_5600_XT, RX_5600_XT_VRAM

from rocmprobe.detect.gpus import amd, amdgpu
from rocmprobe.detect.gpus.amd import effective_isa
from rocmprobe.model.results import Fact

PROPERTIES = "/sys/class/kfd/kfd/topology/nodes/1/properties"


def only(machine):
    assert len(machine.gpus) == 1
    assert not [name for name in machine.facts if name.startswith("errors.")]
    return machine.gpus[0]


def test_rx_5600_xt(build):
    build.rx_5600_xt()
    machine = build.detect()
    gpu = only(machine)
    assert gpu.native_isa.value == "gfx1010"
    assert gpu.native_isa.source == f"{PROPERTIES} gfx_target_version"
    assert gpu.effective_isa.value == "gfx1010"
    assert gpu.name.value == "AMD Radeon RX 5600 XT"
    assert gpu.pci_id.value == "0x731f"
    assert gpu.revision.value == "0xca"
    assert gpu.cus.value == 36
    assert gpu.vram_bytes.value == RX_5600_XT_VRAM
    assert (gpu.vendor.value, gpu.driver.value) == ("amd", "amdgpu")
    assert (gpu.simds.value, gpu.apu.value, gpu.address.value) == (72, False, "0000:0b:00.0")
    assert machine.value("amd.cards") == 1
    assert "kfd.unlisted" not in machine.facts
    assert all(fact.source for fact in vars(gpu).values())


MANY = int("9" * 4000)
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"


def gpu_of(rule, values, sources={}, /, node={}, device={}, **environ):  # noqa: B006 - read only
    """A row: the rule, values of a GPU and parts of their sources, and the machine (None: not there)."""
    return pytest.param(node, device, environ, values, sources, id=rule)


@pytest.mark.parametrize(
    ("node", "device", "environ", "values", "sources"),
    [
        gpu_of("an override changes the effective ISA alone",
               {"native_isa": "gfx1010", "effective_isa": "gfx1030"},
               {"effective_isa": f"{OVERRIDE}=10.3.0"}, **{OVERRIDE: "10.3.0"}),
        gpu_of("an override of the node wins", {"effective_isa": "gfx1010"},
               {"effective_isa": f"{OVERRIDE}_1=10.1.0"}, **{OVERRIDE: "10.3.0", f"{OVERRIDE}_1": "10.1.0"}),
        gpu_of("an override of another node", {"effective_isa": "gfx1030"},
               **{OVERRIDE: "10.3.0", f"{OVERRIDE}_2": "10.1.0"}),
        *(gpu_of("a malformed override", {"effective_isa": None},
                 {"effective_isa": f"{value!r} is not MAJOR.MINOR.STEPPING"}, **{OVERRIDE: value})
          for value in ("gfx1030", "10.3", "")),
        gpu_of("an APU names both sizes of its memory", {"cus": 12, "vram_bytes": 4294967296},
               {"vram_bytes": "31433977856"},
               node={"simd_count": 24, "gfx_target_version": 110003, "device_id": 0x15BF,
                     "vram": 31433977856},
               device={"device": "0x15bf", "mem_info_vram_total": "4294967296"}),
        gpu_of("an APU whose node has the processor, too", {"native_isa": "gfx700", "apu": True},
               {"apu": "cpu_cores_count"}, device=None,
               node={"cpu_cores_count": 4, "gfx_target_version": 0, "device_id": 0x1304, "simd_per_cu": 4}),
        gpu_of("the partition by the driver", {"partition": "SPX"},
               device={"device": "0x731f", "current_compute_partition": "SPX"}),
        gpu_of("kernel and table differ: both are named", {"native_isa": "gfx1012", "pci_id": "0x731f"},
               {"native_isa": "gpus.toml has gfx1010 for PCI id 0x731f", "pci_id": " 0x7340)"},
               node={"gfx_target_version": 100102}, device={"device": "0x7340"}),
        gpu_of("numbers of more than 64 bits", {"vram_bytes": None},
               {"native_isa": "no gfx_target_version"}, device=None,
               node={"gfx_target_version": MANY, "local_mem_size": MANY}),
        gpu_of("a kernel without gfx_target_version",
               {"native_isa": "gfx1010", "vram_bytes": 17163091968, "revision": None},
               {"native_isa": "no gfx_target_version"}, device=None,
               node={"gfx_target_version": None, "domain": None, "local_mem_size": 17163091968}),
        gpu_of("a chip of the future", {"native_isa": "gfx1311", "effective_isa": "gfx1311", "name": None,
                                        "apu": None, "wave_size": None}, device=None,
               node={"gfx_target_version": 130101, "device_id": 0x9999}),
    ],
)  # fmt: skip
def test_one_gpu(build, node, device, environ, values, sources):
    properties = {name: value for name, value in {**RX_5600_XT, **node}.items() if value is not None}
    build.node(0, CPU_NODE)
    build.node(1, properties, properties.pop("vram", None))
    if device is not None:
        build.device("0000:0b:00.0", **{"device": "0x731f", **device})
    gpu = only(build.detect(**environ))
    assert {name: getattr(gpu, name).value for name in values} == values
    assert [name for name, words in sources.items() if words not in getattr(gpu, name).source] == []


def link(build, node, number, **properties):
    text = "".join(f"{name} {value}\n" for name, value in properties.items())
    build.file(f"{NODES}/{node}/io_links/{number}/properties", text)


@pytest.mark.parametrize(
    ("kind", "flags", "carried"),
    [
        (2, 1, True),
        (2, 1 | 4 | 8, False),
        (2, 3 | 4, False),
        (2, 0, None),
        (11, 1, True),
        (11, 1 | 4 | 8, True),
    ],
)
def test_atomics_by_the_flags_of_the_link_to_the_processor(build, kind, flags, carried):
    build.rx_5600_xt()
    link(build, 1, 0, type=kind, node_from=1, node_to=0, flags=flags)
    gpu = only(build.detect())
    assert gpu.pcie_atomics.value is carried
    assert f"nodes/1/io_links/0/properties flags {flags}" in gpu.pcie_atomics.source


def test_links_between_gpus_do_not_count(build):
    build.node(0, CPU_NODE)
    build.node(1, RX_5600_XT)
    build.node(2, {**RX_5600_XT, "location_id": 0x0C00})
    link(build, 1, 0, type=2, node_from=1, node_to=2, flags=1)
    link(build, 1, 1, type=2, node_from=1, node_to=0, flags=13)
    first, second = build.detect().gpus
    assert (first.pcie_atomics.value, second.pcie_atomics.value) == (False, None)
    assert "no link to a processor" in second.pcie_atomics.source


def test_override_counts_nodes_without_those_closed_to_a_container(build, monkeypatch):
    build.node(0, CPU_NODE)
    build.node(1, RX_5600_XT)
    build.node(2, {**RX_5600_XT, "location_id": 0x0C00})
    open_file = os.open

    def denied(path, *arguments, **options):
        if "nodes/1/properties" in str(path):
            raise PermissionError(1, "Operation not permitted")
        return open_file(path, *arguments, **options)

    monkeypatch.setattr(os, "open", denied)
    gpu = only(build.detect(HSA_OVERRIDE_GFX_VERSION_1="10.3.0"))
    assert gpu.address.value == "0000:0c:00.0"
    assert gpu.effective_isa.value == "gfx1030"


def test_two_gpus_are_sorted_by_pci_address(build):
    build.node(1, {**RX_5600_XT, "location_id": 0x0C00}, RX_5600_XT_VRAM)
    build.node(2, {**RX_5600_XT, "gfx_target_version": 110000, "device_id": 0x744C, "location_id": 0x0300})
    machine = build.detect()
    assert [gpu.native_isa.value for gpu in machine.gpus] == ["gfx1100", "gfx1010"]
    assert machine.value("amd.cards") == 2


def test_domain_comes_before_bus(build):
    build.node(1, {**RX_5600_XT, "domain": 1, "location_id": 0x0100})
    build.node(2, {**RX_5600_XT, "gfx_target_version": 100102, "location_id": 0xFF00})
    assert [gpu.native_isa.value for gpu in build.detect().gpus] == ["gfx1012", "gfx1010"]


@pytest.mark.parametrize(
    ("parts", "dies", "mode"), [(8, 1, "CPX"), (4, 2, "QPX"), (2, 4, "DPX"), (2, 0, None)]
)
def test_partitions_are_devices_of_one_card(build, parts, dies, mode):
    part = {
        **RX_5600_XT, "simd_count": 152, "simd_per_cu": 4, "gfx_target_version": 90402, "device_id": 0x74A1,
        "num_xcc": dies,
    }  # fmt: skip
    for function in range(parts):
        build.node(function + 1, {**part, "location_id": 0x0500 + function}, 24 << 30)
    build.device(
        "0000:05:00.0", device="0x74a1", mem_info_vram_total=str(192 << 30), mem_info_vram_used="1000",
        gpu_busy_percent="3", vbios_version="v", **{"class": "0x120000"},
    )  # fmt: skip
    machine = build.detect()
    assert (len(machine.gpus), machine.value("amd.cards")) == (parts, 1)
    assert "kfd.unlisted" not in machine.facts
    names = ("partition", "cus", "vram_bytes", "name", "vbios", "vram_used_bytes", "busy_percent")
    found = {tuple(getattr(gpu, name).value for name in names) for gpu in machine.gpus}
    assert found == {(mode, 38, 24 << 30, "AMD Instinct MI300X", "v", None, None)}
    assert "whole card" in machine.gpus[0].busy_percent.source


def test_functions_that_are_devices_of_their_own_are_no_partitions(build):
    """Two virtual functions in one machine differ in the function number, as partitions do."""
    for function in range(2):
        build.node(function + 1, {**RX_5600_XT, "num_xcc": 4, "location_id": 0x0500 + function})
        build.device(f"0000:05:00.{function}", device="0x731f", mem_info_vram_used=f"{function}00")
    machine = build.detect()
    assert [gpu.vram_used_bytes.value for gpu in machine.gpus] == [0, 100]
    assert {gpu.partition.value for gpu in machine.gpus} == {None}
    assert machine.value("amd.cards") == 2


def test_pci_device_that_kfd_does_not_list(build):
    build.device("0000:0b:00.0", device="0x731f", revision="0xca", mem_info_vram_total="6425673728")
    machine = build.detect()
    gpu = only(machine)
    assert gpu.native_isa.value == "gfx1010"
    assert "KFD does not list this GPU" in gpu.native_isa.source
    assert gpu.name.value == "AMD Radeon RX 5600 XT"
    assert gpu.cus.value is None
    assert gpu.driver.value is None
    assert machine.value("kfd.unlisted") == ["0000:0b:00.0"]
    assert machine.value("amd.cards") == 1


def test_driver_of_an_unlisted_gpu(build):
    build.device("0000:0b:00.0", device="0x731f", uevent="DRIVER=vfio-pci")
    build.device("0000:0c:00.0", device="0x731f")
    build.link("sys/bus/pci/devices/0000:0c:00.0/driver", "/sys/bus/pci/drivers/radeon")
    build.file("sys/bus/pci/drivers/radeon/bind", "")
    assert [gpu.driver.value for gpu in build.detect().gpus] == ["vfio-pci", "radeon"]


def test_only_displays_and_accelerators_are_gpus(build):
    build.device("0000:07:00.0", device="0x1478", **{"class": "0x060400"})
    build.device("0000:09:00.1", device="0xab38", **{"class": "0x040300"})
    build.device("0000:00:02.0", device="0x46a6", vendor="0x8086")
    build.node(0, CPU_NODE)
    assert build.detect().gpus == ()


def test_nul_padding_is_stripped(build):
    build.device("0000:0b:00.0", pad=b"\0" * 4000, device="0x731f", revision="0xca")
    build.file(f"{NODES}/1/properties", "".join(f"{n} {v}\n" for n, v in RX_5600_XT.items()) + "\0" * 900)
    gpu = only(build.detect())
    assert (gpu.name.value, gpu.cus.value) == ("AMD Radeon RX 5600 XT", 36)


def test_unreadable_files_are_told(build, monkeypatch):
    build.rx_5600_xt()
    open_file = os.open

    def denied(path, *arguments, **options):
        if "topology" in str(path) or "osrelease" in str(path):
            raise PermissionError(13, "Permission denied")
        return open_file(path, *arguments, **options)

    monkeypatch.setattr(os, "open", denied)
    machine = build.detect()
    assert "KFD does not list" in only(machine).native_isa.source
    assert f"{PROPERTIES}: permission denied" in machine.value("kfd.refused")
    assert "permission denied" in machine.facts["kfd.unlisted"].source
    assert machine.facts["kernel.release"].source == "/proc/sys/kernel/osrelease: permission denied"


@pytest.mark.parametrize(
    ("hip", "isa"), [("6.2.41134", "gfx1010"), ("6.3.42131", "gfx1030"), (None, "gfx1030")]
)
def test_old_runtimes_do_not_read_the_form_with_a_node_number(hip, isa):
    native = Fact("gfx1010", "KFD")
    assert effective_isa(native, 1, {"HSA_OVERRIDE_GFX_VERSION_1": "10.3.0"}, hip).value == isa


def test_a_controller_that_hangs_costs_its_own_facts_alone(build, monkeypatch):
    build.rx_5600_xt()
    monkeypatch.setattr(amd, "_PATIENCE", 0.1)
    monkeypatch.setattr(amdgpu, "read_state", lambda *_: threading.Event().wait())
    gpu = only(build.detect())
    assert gpu.native_isa.value == "gfx1010"
    assert gpu.power_w == Fact(None, "/sys/bus/pci/devices/0000:0b:00.0: no answer in 0.1 s")


def test_which_number_is_which(build):
    build.node(0, CPU_NODE)
    raphael = {"device_id": 0x164E, "gfx_target_version": 100306, "location_id": 0x1000, "unique_id": 0}
    build.node(1, {**RX_5600_XT, **raphael})
    build.node(2, {**RX_5600_XT, "unique_id": 0x4904BA80F4E6B186})

    def numbers(**environ):
        return [(gpu.address.value, gpu.order.value, gpu.index.value) for gpu in build.detect(**environ).gpus]

    card, integrated = "0000:0b:00.0", "0000:10:00.0"
    assert numbers() == [(card, 1, 1), (integrated, 0, 0)]
    assert numbers(HIP_VISIBLE_DEVICES="1") == [(card, 1, 0), (integrated, 0, None)]
    assert numbers(ROCR_VISIBLE_DEVICES="GPU-4904BA80F4E6B186") == [(card, 1, 0), (integrated, 0, None)]
    first, second = build.detect().gpus
    assert first.uuid.value == "GPU-4904ba80f4e6b186"
    assert second.uuid.value is None
    assert "ROCm shows GPU-XX" in second.uuid.source
    assert second.apu.value is True
