"""Sensors: the conditions of a moment, readings and limits, from the files of a machine."""

from __future__ import annotations

import os
import struct
import time

import pytest
from test_recorded_machines import FIXTURES, mount

from rocmprobe.detect import sensors
from rocmprobe.detect.sensors import find_devices, read, read_conditions, read_limits
from rocmprobe.detect.tree import Tree
from rocmprobe.judge.findings.alarms import alarms
from rocmprobe.model.results import Fact, Gpu

DEVICE = "sys/bus/pci/devices/0000:0b:00.0"
CARD = Gpu(vendor=Fact("amd"), address=Fact("0000:0b:00.0"))
AMDGPU = {
    f"{DEVICE}/hwmon/hwmon3/temp1_input": "61000\n", f"{DEVICE}/hwmon/hwmon3/temp1_label": "edge\n",
    f"{DEVICE}/hwmon/hwmon3/power1_average": "120000000\n", f"{DEVICE}/hwmon/hwmon3/fan1_input": "1200\n",
    f"{DEVICE}/pp_dpm_sclk": "0: 300Mhz\n1: 1560Mhz *\n", f"{DEVICE}/pp_dpm_mclk": "0: 100Mhz\n1: 875Mhz *\n",
}  # fmt: skip
OF_CARD = {"core_clock_mhz": 1560, "memory_clock_mhz": 875, "temperature_edge_c": 61, "power_w": 120}
CPUFREQ, CLASS, ZONE = "sys/devices/system/cpu", "sys/class/hwmon", "sys/class/thermal/thermal_zone"


def amd(address):
    return Gpu(vendor=Fact("amd"), address=Fact(address))


@pytest.mark.parametrize(
    ("gpu", "files", "expected"),
    [
        pytest.param(CARD, AMDGPU, OF_CARD, id="a card"),
        pytest.param(amd("0000:0b:00.3"), AMDGPU, OF_CARD, id="a part of a card"),
        pytest.param(CARD, {**AMDGPU, f"{DEVICE}/power/runtime_status": "suspended"}, {}, id="it sleeps"),
        pytest.param(amd(None), AMDGPU, {}, id="an unknown place"),
        pytest.param(Gpu(vendor=Fact("nvidia"), address=CARD.address), AMDGPU, {}, id="another kind"),
        pytest.param(None,
                     {f"{CPUFREQ}/cpu0/cpufreq/scaling_cur_freq": "1400000",
                      f"{CPUFREQ}/cpu1/cpufreq/scaling_cur_freq": "4250000",
                      f"{CPUFREQ}/cpuidle/cpufreq/scaling_cur_freq": "9000000",
                      "proc/cpuinfo": "cpu MHz\t\t: 2000.000",
                      f"{CLASS}/hwmon0/name": "nvme", f"{CLASS}/hwmon0/temp1_input": "90000",
                      f"{CLASS}/hwmon1/name": "k10temp", f"{CLASS}/hwmon1/temp1_input": "55250",
                      f"{ZONE}0/type": "x86_pkg_temp", f"{ZONE}0/temp": "99000"},
                     {"core_clock_mhz": 4250, "temperature_c": 55.25},
                     id="the fastest core and the sensor of the processor"),
        pytest.param(None,
                     {"proc/cpuinfo": "processor\t: 0\ncpu MHz\t\t: 2596.136\n\nprocessor\t: 1\n"
                      "cpu MHz\t\t: 800.0", f"{ZONE}0/type": "acpitz", f"{ZONE}0/temp": "70000",
                      f"{ZONE}1/type": "cpu-thermal", f"{ZONE}1/temp": "48000"},
                     {"core_clock_mhz": 2596.136, "temperature_c": 48}, id="no cpufreq, no hwmon"),
        *(pytest.param(None,
                       {f"{CPUFREQ}/cpu0/cpufreq/scaling_cur_freq": odd, "proc/cpuinfo": f"cpu MHz : {odd}",
                        f"{CLASS}/hwmon0/name": "coretemp", f"{CLASS}/hwmon0/temp1_input": odd}, {},
                       id=f"no number: {odd:.9}") for odd in ("", "-1", "0", "hot", "9" * 400)),
    ],
)  # fmt: skip
def test_conditions(build, gpu, files, expected):
    build.files(files)
    assert read_conditions(Tree(build.root), gpu) == expected


def test_a_reading_that_hangs_is_given_up(build, monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setattr(sensors, "_PATIENCE", 0.05)
    monkeypatch.setattr(sensors, "read_cpu", lambda tree: {"core_clock_mhz": float(len(os.read(reading, 1)))})
    assert read_conditions(Tree(build.root), None) == {}
    # The thread that reads ends with what it waited for.
    os.close(writing)
    time.sleep(0.05)
    os.close(reading)


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


@pytest.mark.parametrize(
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
@pytest.mark.parametrize("case", CASES)
def test_recorded_cards_are_read_and_raise_no_alarm(build, case):
    mount(build, f"sysfs-lact-{case}")
    tree, device = card_again(build)
    reading = read(tree, device)
    assert len(reading) >= CASES[case]
    limits = {name: limit.value for name, limit in read_limits(tree, device).items()}
    assert all(0 < reading.get(name, 1) < limit for name, limit in limits.items())
    assert alarms(reading, limits) == ()
