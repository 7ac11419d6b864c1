"""The present state of one AMD GPU, from what the amdgpu driver shows in the sysfs folder of its PCI device.

Format: linux Documentation/gpu/amdgpu/thermal.rst (clocks, load) and Documentation/hwmon/sysfs-interface.rst
(millidegrees, microwatts, hertz, turns a minute). Identifiers (unique_id, serial_number) are not read.
"""

from __future__ import annotations

import re

from rocmprobe.detect.gpus import pci
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact

#: The row in use of a pp_dpm_* table, "1: 900Mhz *"; where several have a star, the last one counts.
_CLOCK_IN_USE = re.compile(r"^\s*\w+:\s*([0-9]{1,9})\s*mhz\s*\*", re.IGNORECASE | re.MULTILINE)
_LINK_IN_USE = re.compile(r"^\s*\w+:\s*([0-9.]+)\s*GT/s,\s*x([0-9]{1,2})\b.*\*", re.MULTILINE)
#: Facts whose reading wakes the GPU; none is read while the GPU sleeps.
ASKED = (
    "pcie_link", "busy_percent", "temperature_edge_c", "temperature_junction_c", "temperature_memory_c",
    "fan_rpm", "power_w", "core_clock_mhz", "memory_clock_mhz",
)  # fmt: skip
#: What the driver keeps in memory.
KEPT = ("partition", "vbios", "vram_vendor", "vram_used_bytes")


def read_state(tree: Tree, folder: str) -> dict[str, Fact]:
    """Facts on the GPU in sysfs folder ``folder``, by the names that they have in ``model.Gpu``.

    A GPU that sleeps (runtime power management of laptops) is not queried: that would wake it, which takes
    seconds. Where two files differ on one thing the source has what the other says.
    """
    state = {
        "partition": tree.fact(f"{folder}/current_compute_partition"),
        "vbios": tree.fact(f"{folder}/vbios_version"),
        "vram_vendor": _vendor(tree.fact(f"{folder}/mem_info_vram_vendor")),
        "vram_used_bytes": pci.number_fact(tree, f"{folder}/mem_info_vram_used"),
    }
    if is_suspended(tree, folder):
        asleep = Fact(None, f"{folder}/power/runtime_status: suspended, not woken to ask")
        return {**state, **dict.fromkeys(ASKED, asleep)}
    hwmon = next((f"{folder}/hwmon/{name}" for name in tree.names(f"{folder}/hwmon")), f"{folder}/hwmon")
    temperatures = _sensors(tree, f"{hwmon}/temp", ("edge", "junction", "mem"), 1000)
    clocks = _sensors(tree, f"{hwmon}/freq", ("sclk", "mclk"), 1000000)
    return {
        **state,
        "pcie_link": _link(tree, folder),
        "busy_percent": pci.number_fact(tree, f"{folder}/gpu_busy_percent"),
        "temperature_edge_c": temperatures["edge"],
        "temperature_junction_c": temperatures["junction"],
        "temperature_memory_c": temperatures["mem"],
        "fan_rpm": pci.number_fact(tree, f"{hwmon}/fan1_input"),
        "power_w": _power(tree, hwmon),
        "core_clock_mhz": _clock(tree, f"{folder}/pp_dpm_sclk", clocks["sclk"]),
        "memory_clock_mhz": _clock(tree, f"{folder}/pp_dpm_mclk", clocks["mclk"]),
    }


def is_suspended(tree: Tree, folder: str) -> bool:
    """Whether runtime power management has put the GPU to sleep."""
    return tree.text(f"{folder}/power/runtime_status") == "suspended"


def _vendor(fact: Fact) -> Fact:
    return Fact(None, f"{fact.source}: unknown") if fact.value == "unknown" else fact


def _sensors(tree: Tree, prefix: str, labels: tuple[str, ...], unit: int) -> dict[str, Fact]:
    """The sensors ``prefix``1_input and on, by label, divided by ``unit``.

    The radeon driver gives no labels; its first sensor is the GPU's own, which comes first in ``labels``.
    """
    found = {label: Fact(None, f"{prefix}*_label: none is {label}") for label in labels}
    for index in range(1, len(labels) + 1):
        label = tree.text(f"{prefix}{index}_label") or (labels[0] if index == 1 else "")
        if label in found:
            found[label] = _scaled(pci.number_fact(tree, f"{prefix}{index}_input"), unit)
    return found


def _scaled(fact: Fact, unit: int) -> Fact:
    return Fact(None if fact.value is None else fact.value / unit, fact.source)


def _power(tree: Tree, hwmon: str) -> Fact:
    """Watts: the average over a while, which newer chips do not give any more, or of this moment."""
    power = pci.number_fact(tree, f"{hwmon}/power1_average")
    if power.value is None:
        power = pci.number_fact(tree, f"{hwmon}/power1_input")
    return _scaled(power, 1000000)


def _clock(tree: Tree, table: str, measured: Fact) -> Fact:
    """Megahertz: the level in use, or else what the sensor measures."""
    in_use = _CLOCK_IN_USE.findall(tree.text(table) or "")
    if not in_use:
        return measured
    level = int(in_use[-1])
    if measured.value in (None, level):
        return Fact(level, table)
    return Fact(level, f"{table} ({measured.source}: {measured.value:g} MHz)")


def _link(tree: Tree, folder: str) -> Fact:
    """The PCIe link by the kernel, with the word of the GPU's own controller where it differs."""
    link = pci.read_link(tree, folder)
    in_use = _LINK_IN_USE.findall(tree.text(f"{folder}/pp_dpm_pcie") or "")
    current = "{} GT/s x{}".format(*in_use[-1]) if in_use else ""
    if not current or (link.value or "").partition(" (")[0] == current:
        return link
    if link.value is None:
        return Fact(current, f"{folder}/pp_dpm_pcie")
    return Fact(link.value, f"{link.source}; {folder}/pp_dpm_pcie: {current}")


def unknown(why: str) -> dict[str, Fact]:
    """The facts of ``read_state`` for a GPU whose PCI device is not there to be read."""
    return dict.fromkeys((*KEPT, *ASKED), Fact(None, why))
