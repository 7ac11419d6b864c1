"""The present state of an AMD GPU, from files of the driver amdgpu in sysfs.

Format: linux Documentation/gpu/amdgpu/thermal.rst (clocks, load) and Documentation/hwmon/sysfs-interface.rst
(millidegrees, microwatts, hertz, revolutions per minute).
This module does not read the identifiers unique_id and serial_number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

from rocmprobe.detect.gpus import pci
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact, Gpu

#: The active row of a pp_dpm_* table, e.g. "1: 900Mhz *".
_CLOCK_IN_USE = re.compile(r"^\s*\w+:\s*([0-9]{1,9})\s*mhz\s*\*", re.IGNORECASE | re.MULTILINE)
_LINK_IN_USE = re.compile(r"^\s*\w+:\s*([0-9.]+)\s*GT/s,\s*x([0-9]{1,2})\b.*\*", re.MULTILINE)


@dataclass(frozen=True)
class Sensor:
    """The files from which a quantity is read, and the divisor that converts the number in the file.

    - ``files``: file names below the device's folder, tried in order
    - ``label``: the kernel's label for the sensor. The number of the sensor with this label replaces "*" in
      ``files``.
    - ``levels``: file that lists the clock levels. The active level overrides the measured clock.
    - ``kept``: True if reading does not wake a suspended GPU
    - ``of_the_card``: True if the quantity is for the whole card, not for one partition
    """

    files: tuple[str, ...]
    divisor: float = 1
    label: str = ""
    levels: str = ""
    kept: bool = False
    of_the_card: bool = False


#: Sensors, keyed by the names of ``model.telemetry.QUANTITIES``.
SENSORS = {
    "temperature_edge_c": Sensor(("hwmon/temp*_input",), 1000, "edge"),
    "temperature_junction_c": Sensor(("hwmon/temp*_input",), 1000, "junction"),
    "temperature_memory_c": Sensor(("hwmon/temp*_input",), 1000, "mem"),
    "core_clock_mhz": Sensor(("hwmon/freq*_input",), 1_000_000, "sclk", "pp_dpm_sclk"),
    "memory_clock_mhz": Sensor(("hwmon/freq*_input",), 1_000_000, "mclk", "pp_dpm_mclk"),
    "fan_rpm": Sensor(("hwmon/fan1_input",)),
    "fan_percent": Sensor(("hwmon/pwm1",), 2.55),
    # Newer chips report no average over time, so read the present value instead.
    "power_w": Sensor(("hwmon/power1_average", "hwmon/power1_input"), 1_000_000),
    "vram_used_bytes": Sensor(("mem_info_vram_used",), kept=True, of_the_card=True),
    "busy_percent": Sensor(("gpu_busy_percent",), of_the_card=True),
}
#: Prefix of file names in ``Sensor.files`` that stands for the folder ``hwmon/hwmonN``.
_HWMON = "hwmon/"
_LABELS = {
    files: [sensor.label for sensor in SENSORS.values() if sensor.files == files]
    for files in {sensor.files for sensor in SENSORS.values() if sensor.label}
}
_FACTS = {field.name: SENSORS[field.name] for field in fields(Gpu) if field.name in SENSORS}
#: Facts that are not read while the GPU is suspended, because reading them would wake the GPU.
ASKED = ("pcie_link", *(name for name, sensor in _FACTS.items() if not sensor.kept))
#: Facts that the driver keeps in memory, so reading them does not wake the GPU.
KEPT = ("partition", "vbios", "vram_vendor", *(name for name, sensor in _FACTS.items() if sensor.kept))


def read_state(tree: Tree, folder: str) -> dict[str, Fact]:
    """Return the present state of a GPU as facts, keyed by the field names of ``Gpu``.

    ``folder`` is the GPU's folder in sysfs. A suspended GPU is not woken.
    """
    state = {
        "partition": tree.fact(f"{folder}/current_compute_partition"),
        "vbios": tree.fact(f"{folder}/vbios_version"),
        "vram_vendor": _vendor(tree.fact(f"{folder}/mem_info_vram_vendor")),
        **{
            name: pci.number_fact(tree, f"{folder}/{sensor.files[0]}")
            for name, sensor in _FACTS.items()
            if sensor.kept
        },
    }
    if is_suspended(tree, folder):
        asleep = Fact(None, f"{folder}/power/runtime_status: suspended, not woken to read it")
        return {**state, **dict.fromkeys(ASKED, asleep)}
    names = places(tree, folder)
    return {
        **state,
        "pcie_link": _link(tree, folder),
        **{
            name: _fact(tree, folder, sensor, names[name])
            for name, sensor in _FACTS.items()
            if not sensor.kept
        },
    }


def hwmon(tree: Tree, folder: str) -> str:
    """Return the folder ``hwmon/hwmonN`` in the GPU's sysfs folder."""
    return next((f"{folder}/hwmon/{name}" for name in tree.names(f"{folder}/hwmon")), f"{folder}/hwmon")


def places(tree: Tree, folder: str) -> dict[str, tuple[str, ...]]:
    """Return the candidate files for each quantity in ``SENSORS``. The files need not exist."""
    sensors = hwmon(tree, folder)
    numbers = {
        files: _numbers(tree, _in(folder, sensors, files[0]), labels) for files, labels in _LABELS.items()
    }
    return {
        name: tuple(
            _in(folder, sensors, file).replace("*", numbers.get(sensor.files, {}).get(sensor.label, "*"))
            for file in sensor.files
        )
        for name, sensor in SENSORS.items()
    }


def _in(folder: str, sensors: str, file: str) -> str:
    return f"{sensors}/{file[len(_HWMON) :]}" if file.startswith(_HWMON) else f"{folder}/{file}"


def _numbers(tree: Tree, pattern: str, labels: Sequence[str]) -> dict[str, str]:
    numbers: dict[str, str] = {}
    # The kernel numbers voltages from 0 and other sensors from 1. In old kernels, the first sensor has no
    # label.
    for index in range(len(labels) + 1):
        unlabelled = labels[0] if index == 1 and not numbers else ""
        label = tree.text(_label(pattern).replace("*", str(index))) or unlabelled
        if label in labels:
            numbers[label] = str(index)
    return numbers


def _label(name: str) -> str:
    return f"{name.removesuffix('_input')}_label"


def is_suspended(tree: Tree, folder: str) -> bool:
    """Return True if runtime power management has suspended the GPU."""
    return tree.text(f"{folder}/power/runtime_status") == "suspended"


def _vendor(fact: Fact) -> Fact:
    return Fact(None, f"{fact.source}: unknown") if fact.value == "unknown" else fact


def _fact(tree: Tree, folder: str, sensor: Sensor, names: Sequence[str]) -> Fact:
    fact = Fact()
    for name in names:
        if "*" in name:
            fact = Fact(None, f"{_label(name)}: no sensor is {sensor.label}")
        else:
            fact = _scaled(pci.number_fact(tree, name), sensor.divisor)
        if fact.value is not None:
            break
    return _clock(tree, f"{folder}/{sensor.levels}", fact) if sensor.levels else fact


def _scaled(fact: Fact, divisor: float) -> Fact:
    return fact if fact.value is None or divisor == 1 else Fact(fact.value / divisor, fact.source)


def _clock(tree: Tree, table: str, measured: Fact) -> Fact:
    """Return the active clock level (MHz) in the file ``table``, else ``measured``."""
    in_use = _CLOCK_IN_USE.findall(tree.text(table) or "")
    if not in_use:
        return measured
    level = int(in_use[-1])
    if measured.value in (None, level):
        return Fact(level, table)
    return Fact(level, f"{table} ({measured.source}: {measured.value:g} MHz)")


def _link(tree: Tree, folder: str) -> Fact:
    """Return the PCIe link that PCI reports, else the PCIe link that amdgpu reports."""
    link = pci.read_link(tree, folder)
    in_use = _LINK_IN_USE.findall(tree.text(f"{folder}/pp_dpm_pcie") or "")
    current = "{} GT/s x{}".format(*in_use[-1]) if in_use else ""
    if not current or (link.value or "").partition(" (")[0] == current:
        return link
    if link.value is None:
        return Fact(current, f"{folder}/pp_dpm_pcie")
    return Fact(link.value, f"{link.source}; {folder}/pp_dpm_pcie: {current}")


def unknown(why: str) -> dict[str, Fact]:
    """Return the facts of ``read_state`` without values, with ``why`` as the source."""
    return dict.fromkeys((*KEPT, *ASKED), Fact(None, why))
