"""One reading of the sensors, from the files of a machine."""

from __future__ import annotations

import struct

import pytest
from rows import every_row
from test_recorded_machines import FIXTURES, mount

from rocmprobe.detect.sensors import find_devices, read, read_limits
from rocmprobe.detect.tree import Tree
from rocmprobe.judge.findings.alarms import alarms

DEVICE = "sys/bus/pci/devices/0000:0b:00.0"
HWMON = f"{DEVICE}/hwmon/hwmon3"
SENSORS = {
    "temp1_label": "edge", "temp1_input": "81000", "temp1_crit": "118000", "temp1_emergency": "99000",
    "temp2_label": "junction", "temp2_input": "104000", "temp2_crit": "105000", "temp2_emergency": "110000",
    "temp3_label": "mem", "temp3_input": "0", "temp3_crit": "105000",
    "fan1_input": "1056", "pwm1": "84", "power1_average": "112000000", "power1_cap": "150000000",
    "freq1_label": "sclk", "freq1_input": "1460000000", "freq2_label": "mclk", "freq2_input": "750000000",
}  # fmt: skip


def card(build, **files):
    build.device("0000:0b:00.0", device="0x731f", revision="0xca", mem_info_vram_total="6425673728",
                 mem_info_vram_used="1073741824", gpu_busy_percent="99", **files)  # fmt: skip
    for name, content in SENSORS.items():
        build.file(f"{HWMON}/{name}", content + "\n")
    tree = Tree(build.root)
    (device,) = find_devices(tree)
    return tree, device


def metrics(status, version=1, revision=3):
    return struct.pack("<HBB", 120, version, revision) + bytes(108) + struct.pack("<Q", status)


def test_every_quantity_in_its_unit(build):
    tree, device = card(build)
    assert (device.address, device.name) == ("0000:0b:00.0", "AMD Radeon RX 5600 XT")
    assert read(tree, device) == {
        "temperature_edge_c": 81, "temperature_junction_c": 104, "fan_rpm": 1056,
        "fan_percent": pytest.approx(32.94, abs=0.01), "power_w": 112, "core_clock_mhz": 1460,
        "memory_clock_mhz": 750, "vram_used_bytes": 2**30, "busy_percent": 99,
    }  # fmt: skip


def test_limits_are_the_card_s_own_and_what_contradicts_itself_is_none(build):
    found = read_limits(*card(build))
    # The edge would be switched off 19 degrees below its limit, and of gfx1010 the table has no edge.
    assert {name: limit.value for name, limit in found.items()} == {
        "temperature_junction_c": 105, "temperature_memory_c": 105, "power_w": 150,
        "vram_used_bytes": 6425673728,
    }  # fmt: skip
    build.file(f"{HWMON}/temp2_crit", "0\n")
    junction = read_limits(*card_again(build))["temperature_junction_c"]
    assert (junction.value, "thermal.toml" in junction.source) == (110, True)


def card_again(build):
    tree = Tree(build.root)
    return tree, find_devices(tree)[0]


def test_a_card_that_sleeps_is_not_asked(build):
    tree, device = card(build)
    build.file(f"{DEVICE}/power/runtime_status", "suspended\n")
    assert read(tree, device) == {}


@every_row(
    ("data", "heat", "power"),
    [
        (metrics(1 << 36), 1, 0), (metrics(1 << 0), 0, 1), (metrics(1 << 22 | 1 << 34), 1, 1),
        (metrics(0), 0, 0),
        (metrics(1 << 36) + bytes(3976), 1, 0),
        (metrics(1 << 36, revision=1), None, None), (metrics(1 << 36, version=2), None, None),
        (metrics(2**64 - 1), None, None), (b"short", None, None),
    ],
)  # fmt: skip
def test_the_driver_s_word_on_throttling(build, data, heat, power):
    tree, device = card(build)
    build.file(f"{DEVICE}/gpu_metrics", data)
    found = read(tree, device)
    assert (found.get("throttled_heat"), found.get("throttled_power")) == (heat, power)


def test_the_processor_where_there_is_no_amd_gpu(build):
    build.file("sys/class/hwmon/hwmon1/name", "k10temp\n")
    build.file("sys/class/hwmon/hwmon1/temp1_input", "55250\n")
    tree, device = card_again(build)
    assert (device.address, read(tree, device)) == ("cpu", {"temperature_c": 55.25})


#: How many quantities of each card are read at least.
CASES = {
    "hd7870": 3, "phoenix": 5, "r7-240": 5, "rx5500xt": 8, "rx580": 8, "rx6600xt": 9, "rx6900xt": 12,
    "rx7600s": 11, "rx7700s": 9, "rx7900xtx": 9, "rx9070": 11, "vangogh": 4, "vega56": 10,
}  # fmt: skip


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not on this machine")
@every_row("case", CASES)
def test_recorded_cards_are_read_and_raise_no_alarm(build, case):
    mount(build, f"sysfs-lact-{case}")
    tree, device = card_again(build)
    reading = read(tree, device)
    assert len(reading) >= CASES[case]
    limits = {name: limit.value for name, limit in read_limits(tree, device).items()}
    assert all(0 < reading.get(name, 1) < limit for name, limit in limits.items())
    assert alarms(reading, limits) == ()
