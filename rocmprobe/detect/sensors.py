"""Clocks and temperatures of this moment: the conditions under which something is measured."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from typing import Optional

from rocmprobe.detect.gpus import amdgpu, pci
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Gpu
from rocmprobe.model.telemetry import CONDITIONS

#: Seconds that a reading may take: the controller of a GPU that hangs lets a read wait for ever.
_PATIENCE = 1.0
_CPUS = "/sys/devices/system/cpu"
_HWMON = "/sys/class/hwmon"
_ZONES = "/sys/class/thermal"
_CPUINFO = "/proc/cpuinfo"
#: Drivers whose first sensor is that of the whole processor: linux Documentation/hwmon, coretemp and k10temp.
_CPU_HWMON = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
#: Thermal zones of a processor: Intel's package sensor, and what device trees call them.
_CPU_ZONE = re.compile(r"x86_pkg_temp|(cpu|soc)[-_]?\d*[-_]?thermal")
_MHZ = re.compile(r"^cpu MHz\s*:\s*([0-9]{1,6}(?:\.[0-9]+)?)\s*$", re.MULTILINE)
_CPU = re.compile(r"cpu[0-9]+")


def read_conditions(tree: Tree, gpu: Optional[Gpu]) -> dict[str, float]:
    """Clocks (MHz), temperatures (degrees Celsius) and power (watts) of ``gpu``, or of the processor where
    that is None: ``core_clock_mhz`` is then that of its fastest core, ``temperature_c`` the highest of its
    sensors.

    What cannot be read within a second is not there; neither is anything of a GPU that sleeps, which is
    not woken, or that is not AMD's.
    """
    found: dict[str, float] = {}

    def read() -> None:
        found.update(processor(tree) if gpu is None else _gpu(tree, gpu))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return {} if thread.is_alive() else found


def _gpu(tree: Tree, gpu: Gpu) -> dict[str, float]:
    if gpu.vendor.value != "amd" or not gpu.address.value:
        return {}
    address = str(gpu.address.value)
    # The parts of a card share its sensors, which are those of function 0.
    folders = [f"{pci.DEVICES}/{address}", f"{pci.DEVICES}/{address.rpartition('.')[0]}.0"]
    folder = next(filter(tree.exists, folders), "")
    state = amdgpu.read_state(tree, folder) if folder else {}
    values = {each.name: state[each.name].value for each in CONDITIONS if each.name in state}
    return {name: float(value) for name, value in values.items() if value is not None}


def processor(tree: Tree) -> dict[str, float]:
    """The clock of the fastest core and the highest temperature of the processor."""
    cores = [f"{_CPUS}/{name}" for name in tree.names(_CPUS) if _CPU.fullmatch(name)]
    clocks = _thousandths(tree, [f"{core}/cpufreq/scaling_cur_freq" for core in cores])
    if not clocks:
        clocks = [float(value) for value in _MHZ.findall(tree.text(_CPUINFO) or "")]
    return {
        **_highest("core_clock_mhz", clocks),
        **_highest("temperature_c", _first_sensors(tree) or _zones(tree)),
    }


def _thousandths(tree: Tree, names: Iterable[str]) -> list[float]:
    """Kilohertz as megahertz, millidegrees as degrees; of the files that hold a number."""
    values = (pci.number_fact(tree, name).value for name in names)
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
