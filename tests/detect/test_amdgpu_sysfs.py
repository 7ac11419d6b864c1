"""The state of a GPU from amdgpu's sysfs files, hwmon sensors and the PCI bridges above it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from rocmprobe.detect.gpus import amd, amdgpu
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Gpu
from rocmprobe.model.telemetry import QUANTITIES

DEVICE = "sys/bus/pci/devices/0000:0b:00.0"


def test_every_fact_of_the_state_is_a_field_of_a_gpu(build):
    names = {field.name for field in fields(Gpu)}
    assert set(amdgpu.read_state(Tree(build.root), "/nowhere")) == {*amdgpu.ASKED, *amdgpu.KEPT} <= names


def test_every_sensor_is_a_quantity_and_what_is_shown_at_a_glance_a_fact():
    assert set(amdgpu.SENSORS) <= set(QUANTITIES)
    assert {row.name for row in QUANTITIES.values() if row.glance} <= {field.name for field in fields(Gpu)}


TEMPERATURES = {
    "temp1_input": "81000", "temp1_label": "mem", "temp2_input": "61500", "temp2_label": "edge",
    "temp3_input": "79000", "temp3_label": "junction",
}  # fmt: skip


def hwmon(**files):
    return {f"hwmon/hwmon4/{name}": text for name, text in files.items()}


@pytest.mark.parametrize(
    ("files", "values", "sources"),
    [
        pytest.param(hwmon(**TEMPERATURES),
                     {"temperature_edge_c": 61.5, "temperature_junction_c": 79, "temperature_memory_c": 81},
                     {"temperature_edge_c": f"/{DEVICE}/hwmon/hwmon4/temp2_input"}, id="labels"),
        pytest.param(hwmon(temp1_input="27000", temp2_input="99000"),
                     {"temperature_edge_c": 27, "temperature_junction_c": None},
                     {"temperature_junction_c": "no sensor is junction"}, id="no label: the edge"),
        pytest.param(hwmon(power1_average="41045000", power1_input="50000000"), {"power_w": 41.045}, {},
                     id="the average of the power"),
        pytest.param(hwmon(power1_input="50000000"), {"power_w": 50}, {"power_w": "power1_input"},
                     id="power without an average"),
        pytest.param({"pp_dpm_sclk": "0: 300Mhz \n1: 900Mhz *\n2: 1780Mhz ",
                      "pp_dpm_mclk": "S: 96Mhz *\n1: 875Mhz *",
                      **hwmon(freq1_input="798080000", freq1_label="sclk")},
                     {"core_clock_mhz": 900, "memory_clock_mhz": 875},
                     {"core_clock_mhz": "freq1_input: 798.08 MHz"}, id="the level with a star"),
        pytest.param({"pp_dpm_sclk": "", **hwmon(freq1_input="31000000")}, {"core_clock_mhz": 31}, {},
                     id="the clock by the sensor only"),
        pytest.param({"mem_info_vram_vendor": "unknown", "mem_info_vram_used": "1490378752"},
                     {"vram_vendor": None, "vram_used_bytes": 1490378752}, {}, id="an unknown maker"),
        pytest.param({"power/runtime_status": "suspended", "vbios_version": "113-EXT",
                      "gpu_busy_percent": "3", **hwmon(temp1_input="27000")},
                     {"vbios": "113-EXT", **dict.fromkeys(amdgpu.ASKED)},
                     {"temperature_edge_c": "suspended"}, id="a GPU that sleeps is not read"),
        pytest.param({"current_link_speed": "8.0 GT/s PCIe", "current_link_width": "8",
                      "max_link_speed": "Unknown", "max_link_width": "0"}, {"pcie_link": "8.0 GT/s x8"}, {},
                     id="the link"),
        pytest.param({"current_link_speed": "8.0 GT/s PCIe", "current_link_width": "8",
                      "max_link_speed": "16.0 GT/s PCIe", "max_link_width": "0"},
                     {"pcie_link": "8.0 GT/s x8"}, {}, id="the link, and a best speed without a width"),
        pytest.param({"pp_dpm_pcie": "0: 2.5GT/s, x8 81Mhz \n1: 8.0GT/s, x16 619Mhz *"},
                     {"pcie_link": "8.0 GT/s x16"}, {}, id="the link by the controller of the GPU"),
        pytest.param({"pp_dpm_pcie": "1: 8.0GT/s, x16 619Mhz *", "current_link_speed": "8.0 GT/s PCIe",
                      "current_link_width": "1"}, {"pcie_link": "8.0 GT/s x1"},
                     {"pcie_link": "pp_dpm_pcie: 8.0 GT/s x16"}, id="two links that differ"),
    ],
)  # fmt: skip
def test_the_state_of_a_gpu(build, files, values, sources):
    build.rx_5600_xt()
    for name, content in files.items():
        build.file(f"{DEVICE}/{name}", content + "\n")
    machine = build.detect()
    assert not [name for name in machine.facts if name.startswith("errors.")]
    (gpu,) = machine.gpus
    assert {name: getattr(gpu, name).value for name in values} == pytest.approx(values)
    assert [name for name, words in sources.items() if words not in getattr(gpu, name).source] == []


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


def test_name_by_libdrm_where_the_table_has_none(build):
    build.file(amd.LIBDRM_TABLES[0][1:], "# a comment\n1.0.0\n\n731F,\tEE,\tAMD Radeon RX 5777\nbad line\n")
    build.device("0000:0b:00.0", device="0x731f", revision="0xee")
    build.device("0000:0c:00.0", device="0x731f", revision="0xca")
    unknown, known = build.detect().gpus
    assert (unknown.name.value, unknown.name.source) == ("AMD Radeon RX 5777", amd.LIBDRM_TABLES[0])
    assert known.name.value == "AMD Radeon RX 5600 XT"
