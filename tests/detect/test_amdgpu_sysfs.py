"""The state of a GPU from amdgpu's sysfs files, hwmon sensors and the PCI bridges above it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from rocmprobe.detect.gpus import amd, amdgpu
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Gpu
from rocmprobe.model.telemetry import QUANTITIES

DEVICE = "sys/bus/pci/devices/0000:0b:00.0"


def gpu_with(build, **files):
    """The GPU of a machine with one RX 5600 XT that has these files; "__" in a name stands for "/"."""
    build.rx_5600_xt()
    for name, content in files.items():
        build.file(f"{DEVICE}/{name.replace('__', '/')}", content + "\n")
    machine = build.detect()
    assert not [name for name in machine.facts if name.startswith("errors.")]
    (gpu,) = machine.gpus
    return gpu


def test_every_fact_of_the_state_is_a_field_of_a_gpu(build):
    names = {field.name for field in fields(Gpu)}
    assert set(amdgpu.read_state(Tree(build.root), "/nowhere")) == {*amdgpu.ASKED, *amdgpu.KEPT} <= names


def test_every_sensor_is_a_quantity_and_what_is_shown_at_a_glance_a_fact():
    assert set(amdgpu.SENSORS) <= set(QUANTITIES)
    assert {row.name for row in QUANTITIES.values() if row.glance} <= {field.name for field in fields(Gpu)}


def test_temperatures_go_by_their_labels(build):
    gpu = gpu_with(
        build,
        hwmon__hwmon4__temp1_input="81000",
        hwmon__hwmon4__temp1_label="mem",
        hwmon__hwmon4__temp2_input="61500",
        hwmon__hwmon4__temp2_label="edge",
        hwmon__hwmon4__temp3_input="79000",
        hwmon__hwmon4__temp3_label="junction",
    )
    assert gpu.temperature_edge_c.value == 61.5
    assert gpu.temperature_junction_c.value == 79
    assert gpu.temperature_memory_c.value == 81
    assert gpu.temperature_edge_c.source == f"/{DEVICE}/hwmon/hwmon4/temp2_input"


def test_a_sensor_without_a_label_is_the_edge(build):
    gpu = gpu_with(build, hwmon__hwmon0__temp1_input="27000", hwmon__hwmon0__temp2_input="99000")
    assert gpu.temperature_edge_c.value == 27
    assert gpu.temperature_junction_c.value is None
    assert "no sensor is junction" in gpu.temperature_junction_c.source


def test_power_is_the_average_where_there_is_one(build):
    gpu = gpu_with(build, hwmon__hwmon0__power1_average="41045000", hwmon__hwmon0__power1_input="50000000")
    assert gpu.power_w.value == pytest.approx(41.045)
    (build.root / DEVICE / "hwmon/hwmon0/power1_average").unlink()
    (gpu,) = build.detect().gpus
    assert (gpu.power_w.value, gpu.power_w.source[-12:]) == (50, "power1_input")


def test_clock_is_the_level_with_a_star_and_the_sensor_is_told_beside_it(build):
    gpu = gpu_with(
        build,
        pp_dpm_sclk="0: 300Mhz \n1: 900Mhz *\n2: 1780Mhz ",
        pp_dpm_mclk="S: 96Mhz *\n1: 875Mhz *",
        hwmon__hwmon0__freq1_input="798080000",
        hwmon__hwmon0__freq1_label="sclk",
    )
    assert gpu.core_clock_mhz.value == 900
    assert "freq1_input: 798.08 MHz" in gpu.core_clock_mhz.source
    assert gpu.memory_clock_mhz.value == 875


def test_clock_by_the_sensor_alone(build):
    gpu = gpu_with(build, pp_dpm_sclk="", hwmon__hwmon0__freq1_input="31000000")
    assert gpu.core_clock_mhz.value == 31


def test_vram_maker_that_the_firmware_does_not_tell(build):
    gpu = gpu_with(build, mem_info_vram_vendor="unknown", mem_info_vram_used="1490378752")
    assert (gpu.vram_vendor.value, gpu.vram_used_bytes.value) == (None, 1490378752)


def test_a_sleeping_gpu_is_not_asked(build):
    gpu = gpu_with(
        build,
        power__runtime_status="suspended",
        vbios_version="113-EXT",
        gpu_busy_percent="3",
        hwmon__hwmon0__temp1_input="27000",
    )
    assert gpu.vbios.value == "113-EXT"
    assert {getattr(gpu, name).value for name in amdgpu.ASKED} == {None}
    assert "suspended" in gpu.temperature_edge_c.source


def test_link_of_the_gpu(build):
    gpu = gpu_with(
        build,
        current_link_speed="8.0 GT/s PCIe",
        current_link_width="8",
        max_link_speed="Unknown",
        max_link_width="0",
    )
    assert gpu.pcie_link.value == "8.0 GT/s x8"


def test_link_of_a_card_with_its_own_switch_is_that_of_the_slot(build):
    """As lspci shows a Navi card: root port, upstream port, downstream port, GPU."""
    places = {
        "0000:00:03.1": ("0x1022", "0x060400", "8.0 GT/s PCIe", "16"),
        "0000:09:00.0": ("0x1002", "0x060400", "8.0 GT/s PCIe", "4"),
        "0000:0a:00.0": ("0x1002", "0x060400", "16.0 GT/s PCIe", "16"),
        "0000:0b:00.0": ("0x1002", "0x030000", "16.0 GT/s PCIe", "16"),
    }
    folder = "sys/devices/pci0000:00"
    for address, (vendor, kind, speed, width) in places.items():
        folder += f"/{address}"
        contents = {
            "vendor": vendor, "class": kind, "device": "0x731f", "revision": "0xca",
            "current_link_speed": speed, "current_link_width": width,
            "max_link_speed": "16.0 GT/s PCIe", "max_link_width": "16",
        }  # fmt: skip
        for name, content in contents.items():
            build.file(f"{folder}/{name}", content + "\n")
        build.link(f"sys/bus/pci/devices/{address}", f"../../../../{folder}")
    (gpu,) = build.detect().gpus
    assert gpu.pcie_link.value == "8.0 GT/s x4 (best 16.0 GT/s x16)"
    assert "0000:09:00.0/current_link_speed" in gpu.pcie_link.source
    assert "at the GPU behind it: 16.0 GT/s x16" in gpu.pcie_link.source


def test_link_by_the_gpu_controller(build):
    gpu = gpu_with(build, pp_dpm_pcie="0: 2.5GT/s, x8 81Mhz \n1: 8.0GT/s, x16 619Mhz *")
    assert gpu.pcie_link.value == "8.0 GT/s x16"
    gpu = gpu_with(build, current_link_speed="8.0 GT/s PCIe", current_link_width="1")
    assert gpu.pcie_link.value == "8.0 GT/s x1"
    assert gpu.pcie_link.source.endswith("pp_dpm_pcie: 8.0 GT/s x16")


def test_name_by_libdrm_where_the_table_has_none(build):
    build.file(amd.LIBDRM_TABLES[0][1:], "# a comment\n1.0.0\n\n731F,\tEE,\tAMD Radeon RX 5777\nbad line\n")
    build.device("0000:0b:00.0", device="0x731f", revision="0xee")
    build.device("0000:0c:00.0", device="0x731f", revision="0xca")
    unknown, known = build.detect().gpus
    assert (unknown.name.value, unknown.name.source) == ("AMD Radeon RX 5777", amd.LIBDRM_TABLES[0])
    assert known.name.value == "AMD Radeon RX 5600 XT"
