"""Clocks and temperatures of a moment, from the files of a machine."""

from __future__ import annotations

import os
import time

from rows import every_row

from rocmprobe.detect import sensors
from rocmprobe.detect.sensors import read_conditions
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact, Gpu

DEVICE = "sys/bus/pci/devices/0000:0b:00.0"
CARD = Gpu(vendor=Fact("amd"), address=Fact("0000:0b:00.0"))
AMDGPU = {
    "hwmon/hwmon3/temp1_input": "61000",
    "hwmon/hwmon3/temp1_label": "edge",
    "hwmon/hwmon3/power1_average": "120000000",
    "hwmon/hwmon3/fan1_input": "1200",
    "pp_dpm_sclk": "0: 300Mhz\n1: 1560Mhz *",
    "pp_dpm_mclk": "0: 100Mhz\n1: 875Mhz *",
}


def conditions(build, gpu=None, **files):
    for name, content in files.items():
        build.file(name, content + "\n")
    return read_conditions(Tree(build.root), gpu)


def card(build, gpu=CARD, **files):
    return conditions(build, gpu, **{f"{DEVICE}/{name}": text for name, text in {**AMDGPU, **files}.items()})


@every_row("address", ["0000:0b:00.0", "0000:0b:00.3"])
def test_a_card_and_the_parts_of_one(build, address):
    assert card(build, Gpu(vendor=Fact("amd"), address=Fact(address))) == {
        "core_clock_mhz": 1560, "memory_clock_mhz": 875, "temperature_edge_c": 61, "power_w": 120,
    }  # fmt: skip


def test_a_card_that_sleeps_is_left_alone(build):
    assert card(build, **{"power/runtime_status": "suspended"}) == {}


@every_row("gpu", [Gpu(vendor=Fact("nvidia"), address=Fact("0000:0b:00.0")), Gpu(vendor=Fact("amd"))])
def test_nothing_of_a_gpu_of_another_kind_or_place(build, gpu):
    assert card(build, gpu) == {}


def test_the_fastest_core_and_the_sensor_of_the_processor(build):
    cpufreq, hwmon = "sys/devices/system/cpu", "sys/class/hwmon"
    assert conditions(build, **{
        f"{cpufreq}/cpu0/cpufreq/scaling_cur_freq": "1400000",
        f"{cpufreq}/cpu1/cpufreq/scaling_cur_freq": "4250000",
        f"{cpufreq}/cpuidle/cpufreq/scaling_cur_freq": "9000000",
        "proc/cpuinfo": "cpu MHz\t\t: 2000.000",
        f"{hwmon}/hwmon0/name": "nvme", f"{hwmon}/hwmon0/temp1_input": "90000",
        f"{hwmon}/hwmon1/name": "k10temp", f"{hwmon}/hwmon1/temp1_input": "55250",
        "sys/class/thermal/thermal_zone0/type": "x86_pkg_temp",
        "sys/class/thermal/thermal_zone0/temp": "99000",
    }) == {"core_clock_mhz": 4250, "temperature_c": 55.25}  # fmt: skip


def test_a_machine_without_cpufreq_and_hwmon(build):
    zone = "sys/class/thermal/thermal_zone"
    assert conditions(build, **{
        "proc/cpuinfo": "processor\t: 0\ncpu MHz\t\t: 2596.136\n\nprocessor\t: 1\ncpu MHz\t\t: 800.0",
        f"{zone}0/type": "acpitz", f"{zone}0/temp": "70000",
        f"{zone}1/type": "cpu-thermal", f"{zone}1/temp": "48000",
    }) == {"core_clock_mhz": 2596.136, "temperature_c": 48}  # fmt: skip


@every_row("odd", ["", "-1", "0", "hot", "9" * 400])
def test_what_is_not_there_or_no_number_is_absent(build, odd):
    found = conditions(build, **{
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": odd, "proc/cpuinfo": f"cpu MHz : {odd}",
        "sys/class/hwmon/hwmon0/name": "coretemp", "sys/class/hwmon/hwmon0/temp1_input": odd,
    })  # fmt: skip
    assert found == {}


def test_a_reading_that_hangs_is_given_up(build, monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setattr(sensors, "_PATIENCE", 0.05)
    monkeypatch.setattr(sensors, "read_cpu", lambda tree: {"core_clock_mhz": float(len(os.read(reading, 1)))})
    assert conditions(build) == {}
    # The thread that reads ends with what it waited for.
    os.close(writing)
    time.sleep(0.05)
    os.close(reading)
