"""Sensor readings of AMD GPUs and of the CPU, from hwmon and sysfs.

Format of the sensor files: linux Documentation/hwmon/sysfs-interface.rst and
Documentation/gpu/amdgpu/thermal.rst. Format of the file gpu_metrics: linux
drivers/gpu/drm/amd/include/kgd_pp_interface.h (struct gpu_metrics_v1_3) and pm/swsmu/inc/amdgpu_smu.h (bits).
"""

from __future__ import annotations

import os
import re
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Optional, TypeVar

from rocmprobe.detect.gpus import amdgpu, kfd, pci
from rocmprobe.detect.tree import ReadError, Tree, number
from rocmprobe.knowledge import gpus
from rocmprobe.model.results import Fact, Gpu
from rocmprobe.model.telemetry import CONDITIONS, TEMPERATURES, Limit
from rocmprobe.text.tables import table

_T = TypeVar("_T")
#: Layout of gpu_metrics 1.3 up to the throttling status. In this format, the status has the same bits on
#: every chip: 0 to 31 for power and current, 32 to 47 for temperatures.
_METRICS = struct.Struct("<HBB108xQ")
_POWER_BITS, _HEAT_BITS = 0x0000_0000_FFFF_FFFF, 0x0000_FFFF_0000_0000
#: Range in degrees Celsius of plausible temperature limits. Other limits from the driver are ignored.
_BELIEVED = (70, 130)


@dataclass(frozen=True)
class SensorDevice:
    """A GPU with sensors, or the CPU (with an empty ``folder``)."""

    address: str
    name: str
    folder: str = ""
    hwmon: str = ""
    files: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    isa: Optional[str] = None
    vram: Fact = field(default_factory=Fact)


def find_devices(tree: Tree) -> tuple[SensorDevice, ...]:
    """Return the AMD GPUs that have sensors, sorted by PCI address, else the CPU."""
    cards = [_card(tree, device) for device in pci.read_devices(tree).values() if device.vendor == kfd.AMD]
    watched = [card for card in cards if card.files]
    return tuple(sorted(watched, key=lambda card: pci.address_order(card.address))) or (
        SensorDevice("cpu", "processor"),
    )


def read(tree: Tree, device: SensorDevice) -> dict[str, float]:
    """Return one reading, keyed by the names of ``telemetry.QUANTITIES``.

    The reading of a suspended GPU is empty.
    """
    if not device.folder:
        return read_cpu(tree)
    if amdgpu.is_suspended(tree, device.folder):
        return {}
    reading = {
        quantity: value / divisor
        for quantity, (name, divisor) in device.files.items()
        if (value := number(tree.text(name))) is not None
    }
    # A sensor that does not exist reads as zero degrees.
    reading = {name: value for name, value in reading.items() if value or not name.startswith("temperature")}
    return {**reading, **_throttled(tree, f"{device.folder}/gpu_metrics")}


def read_limits(tree: Tree, device: SensorDevice) -> dict[str, Limit]:
    """Return the limits of a device, keyed by quantity. This wakes a suspended GPU.

    If the card reports no plausible temperature limit, the limit is from ``data/thermal.toml``.
    """
    limits = {}
    by_table = table("thermal").get(device.isa or "", {})
    for quantity in (name for name in device.files if name in TEMPERATURES):
        stem = device.files[quantity][0].removesuffix("_input")
        name = f"{stem}_crit"
        millidegrees = number(tree.text(name)) or 0
        switched_off = number(tree.text(f"{stem}_emergency"))
        if _BELIEVED[0] <= millidegrees / 1000 <= _BELIEVED[1] and (
            switched_off is None or switched_off >= millidegrees
        ):
            limits[quantity] = Limit(millidegrees / 1000, name)
        # The table's key is e.g. "edge" for "temperature_edge_c".
        elif (sensor := quantity.split("_")[1]) in by_table:
            source = f"data/thermal.toml: {by_table['source']}"
            limits[quantity] = Limit(float(by_table[sensor]), source)
    cap = f"{device.hwmon}/power1_cap"
    watts = (number(tree.text(cap)) or 0) / 1_000_000
    if device.hwmon and watts:
        limits["power_w"] = Limit(watts, cap)
    if device.vram.value:
        limits["vram_used_bytes"] = Limit(float(device.vram.value), device.vram.source)
    return limits


def _card(tree: Tree, device: pci.PciDevice) -> SensorDevice:
    folder, hwmon = device.folder, amdgpu.hwmon(tree, device.folder)
    files = {
        quantity: (name, amdgpu.SENSORS[quantity].divisor)
        for quantity, names in amdgpu.places(tree, folder).items()
        if (name := next(filter(tree.exists, names), ""))
    }
    if not any(name.startswith(hwmon) for name, _ in files.values()):
        files = {}
    pci_id = device.device.value
    isa = gpus.gfx_of(pci_id)
    chip = f"AMD {gpus.chip(isa)}" if isa else "AMD GPU"
    name = gpus.marketing_name(pci_id, device.revision.value) or chip
    # An APU has no limit, because it uses system memory when its reserved memory is full.
    vram = Fact() if gpus.is_apu(pci_id) else device.vram_bytes
    return SensorDevice(device.address, name, folder, hwmon, files, isa, vram)


def _throttled(tree: Tree, name: str) -> dict[str, float]:
    """Return ``throttled_heat`` and ``throttled_power`` (0 or 1) from a gpu_metrics 1.3 file, else {}."""
    try:
        with tree.opened(name) as handle:
            data = os.read(handle, _METRICS.size)
        _, version, revision, status = _METRICS.unpack(data)
    except (ReadError, struct.error):
        return {}
    if (version, revision) != (1, 3) or status == (1 << 64) - 1:
        return {}
    return {
        "throttled_heat": float(bool(status & _HEAT_BITS)),
        "throttled_power": float(bool(status & _POWER_BITS)),
    }


#: Timeout of a reading in seconds, because reading from a hung GPU can block forever.
_PATIENCE = 1.0
_CPUS = "/sys/devices/system/cpu"
_HWMON = "/sys/class/hwmon"
_ZONES = "/sys/class/thermal"
_CPUINFO = "/proc/cpuinfo"
#: Drivers whose first sensor is for the whole CPU (linux Documentation/hwmon, coretemp and k10temp).
_CPU_HWMON = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
#: Thermal zones of a CPU: Intel's package sensor, and names from device trees.
_CPU_ZONE = re.compile(r"x86_pkg_temp|(cpu|soc)[-_]?\d*[-_]?thermal")
_MHZ = re.compile(r"^cpu MHz\s*:\s*([0-9]{1,6}(?:\.[0-9]+)?)\s*$", re.MULTILINE)
_CPU = re.compile(r"cpu[0-9]+")


def read_conditions(tree: Tree, gpu: Optional[Gpu]) -> dict[str, float]:
    """Return clocks (MHz), temperatures (degrees Celsius) and power (watts) of a GPU or the CPU.

    If ``gpu`` is None, return ``core_clock_mhz`` and ``temperature_c`` of the CPU. If the GPU does not answer
    within 1 s, return {}.
    """
    return _in_time(lambda: read_cpu(tree) if gpu is None else _gpu(tree, gpu))


def read_busy(tree: Tree, folder: str) -> Optional[float]:
    """Return the load in percent of the GPU with this sysfs folder, or None if there is no sensor."""
    return 0.0 if amdgpu.is_suspended(tree, folder) else number(tree.text(f"{folder}/gpu_busy_percent"))


def find_folder(tree: Tree, gpu: Gpu) -> str:
    """Return the sysfs folder with the sensors of an AMD GPU, or "" if there is none."""
    if gpu.vendor.value != "amd" or not gpu.address.value:
        return ""
    address = str(gpu.address.value)
    # All partitions of a card use the sensors of PCI function 0.
    folders = [f"{pci.DEVICES}/{address}", f"{pci.DEVICES}/{address.rpartition('.')[0]}.0"]
    return next(filter(tree.exists, folders), "")


def _in_time(read: Callable[[], dict[str, _T]]) -> dict[str, _T]:
    reading: dict[str, _T] = {}
    thread = threading.Thread(target=lambda: reading.update(read()), daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return {} if thread.is_alive() else reading


def _gpu(tree: Tree, gpu: Gpu) -> dict[str, float]:
    folder = find_folder(tree, gpu)
    state = amdgpu.read_state(tree, folder) if folder else {}
    values = {quantity.name: state[quantity.name].value for quantity in CONDITIONS if quantity.name in state}
    return {name: float(value) for name, value in values.items() if value is not None}


def read_cpu(tree: Tree) -> dict[str, float]:
    """Return the clock of the fastest CPU core and the highest temperature of the CPU."""
    cores = [f"{_CPUS}/{name}" for name in tree.names(_CPUS) if _CPU.fullmatch(name)]
    clocks = _thousandths(tree, [f"{core}/cpufreq/scaling_cur_freq" for core in cores])
    if not clocks:
        clocks = [float(value) for value in _MHZ.findall(tree.text(_CPUINFO) or "")]
    return {
        **_highest("core_clock_mhz", clocks),
        **_highest("temperature_c", _first_sensors(tree) or _zones(tree)),
    }


def _thousandths(tree: Tree, names: Iterable[str]) -> list[float]:
    """Return the numbers in the files, divided by 1000."""
    values = (number(tree.text(name)) for name in names)
    return [value / 1000 for value in values if value is not None]


def _highest(name: str, values: Iterable[float]) -> dict[str, float]:
    return {name: highest} if (highest := max(values, default=0.0)) > 0 else {}


def _first_sensors(tree: Tree) -> list[float]:
    chips = [f"{_HWMON}/{name}" for name in tree.names(_HWMON)]
    own = [chip for chip in chips if tree.text(f"{chip}/name") in _CPU_HWMON]
    return _thousandths(tree, [f"{chip}/temp1_input" for chip in own])


def _zones(tree: Tree) -> list[float]:
    zones = [f"{_ZONES}/{name}" for name in tree.names(_ZONES)]
    own = [zone for zone in zones if _CPU_ZONE.fullmatch(tree.text(f"{zone}/type") or "")]
    return _thousandths(tree, [f"{zone}/temp" for zone in own])
