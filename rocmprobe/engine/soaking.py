"""Observation of a soak: sensors, kernel log and temperature limit.

Results are stored outside of the child process, which can be killed at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

from rocmprobe.detect.host import dmesg
from rocmprobe.detect.sensors import limits_of, read_conditions
from rocmprobe.detect.tree import Tree
from rocmprobe.engine.journal import BaseJournal
from rocmprobe.model.results import Gpu
from rocmprobe.model.telemetry import CHIP, LASTING_SAMPLES, TEMPERATURES, DeviceTelemetry, Limit

#: Seconds between two readings of the sensors, and of the kernel log. Each reading of the sensors is written
#: to the journal.
_SENSORS_EVERY, _KERNEL_EVERY = 1.0, 10.0
#: Sensors of which the largest value is stored.
_PEAKS = (*TEMPERATURES, "temperature_c", "power_w")
_MOST_EVENTS = 20

Reading = Mapping[str, float]


class Sensors:
    """The sensors of a GPU, or of the processor if ``gpu`` is None."""

    def __init__(self, gpu: Optional[Gpu], tree: Tree) -> None:
        self._gpu, self._tree = gpu, tree
        self.limits: Mapping[str, Limit] = limits_of(tree, gpu) if gpu else {}

    def read(self, seconds: float) -> Reading:
        """Return the current reading. ``seconds`` is the time since the soak began."""
        return read_conditions(self._tree, self._gpu)


class SimulatedSensors(Sensors):
    """The sensors of a simulated machine."""

    def __init__(self, telemetry: Optional[DeviceTelemetry]) -> None:
        self._telemetry = telemetry
        self.limits = telemetry.limits if telemetry else {}

    def read(self, seconds: float) -> Reading:
        moments = zip(self._telemetry.seconds, self._telemetry.moments()) if self._telemetry else ()
        passed = [reading for at, reading in moments if at is not None and at <= seconds]
        return passed[-1] if passed else {}


class KernelLog:
    """Messages about AMD GPUs in the kernel log since the soak began.

    ``source`` tells where the log is read, or why the log cannot be read.
    """

    def __init__(self, read: Callable[[], tuple[Optional[list[dict[str, Any]]], str]]) -> None:
        self._read = read
        before, self.source = read()
        self.is_read = before is not None
        self._before = {_key(event): event["count"] for event in before or ()}
        self._simulated: list[dict[str, Any]] = []

    def add(self, lines: Iterable[str]) -> None:
        """Add lines to the log of a simulated machine."""
        self._simulated += dmesg.parse("\n".join(lines)).events

    def new(self) -> list[dict[str, Any]]:
        """Return the events since the soak began, each with a count."""
        events = [*(self._read()[0] or ()), *self._simulated]
        counted = [{**event, "count": event["count"] - self._before.get(_key(event), 0)} for event in events]
        return [event for event in counted if event["count"] > 0][:_MOST_EVENTS]


def _key(event: Mapping[str, Any]) -> tuple[Any, Any]:
    return event["kind"], event["address"]


def kernel_log(tree: Tree) -> KernelLog:
    def read() -> tuple[Optional[list[dict[str, Any]]], str]:
        fact = dmesg.read_facts(tree)["dmesg.events"]
        return fact.value, fact.source

    return KernelLog(read)


class SoakWatch:
    """The observer of a soak.

    ``stop_at`` is the temperature in degrees Celsius that ends the soak, or 0 for the limits of the device.
    """

    def __init__(
        self, case: str, journal: BaseJournal, sensors: Sensors, kernel: KernelLog, stop_at: float = 0
    ) -> None:
        self._case, self._journal = case, journal
        self._sensors, self._kernel = sensors, kernel
        names = (*TEMPERATURES, "temperature_c")
        asked = Limit(stop_at, "--stop-at")
        self._limits = {
            name: asked if stop_at else sensors.limits[name]
            for name in names
            if stop_at or name in sensors.limits
        }
        self._hot = 0
        self._described: dict[int, dict[str, Any]] = {}
        self._read_at = self._written_at = self._logged_at = float("-inf")
        self.conditions: dict[str, dict[str, float]] = {}
        self.numerics: dict[str, Any] = {
            "temperature_limits": {name: vars(limit) for name, limit in self._limits.items()},
            "kernel_log": kernel.source if kernel.is_read else f"not read: {kernel.source}",
            "kernel_events": [],
        }

    def take(self, progress: Mapping[str, Any]) -> bool:
        """Store the child's progress. Return False if the device is too hot."""
        now, before = time.monotonic(), self.numerics.get("mismatches", 0)
        news = progress["mismatches"] > before
        self.numerics.update(progress)
        if news or now - self._read_at >= _SENSORS_EVERY or isinstance(self._sensors, SimulatedSensors):
            self._read_at = now
            self._read(progress["seconds"])
        if now - self._logged_at >= _KERNEL_EVERY:
            self._logged_at = now
            self.numerics["kernel_events"] = self._kernel.new()
        self.numerics["mismatch"] = [self._with_heat(each) for each in progress["mismatch"]]
        stopped = "stopped" in self.numerics
        if news or stopped or now - self._written_at >= _SENSORS_EVERY:
            self._written_at = now
            self._write()
        return not stopped

    def logged(self, lines: Iterable[str]) -> None:
        """Add lines to the kernel log of a simulated machine."""
        self._kernel.add(lines)

    def end(self, answers: Optional[bool] = None) -> None:
        """Finish the observation. ``answers`` is True if the device still responds, or None if not tested."""
        self.numerics["kernel_events"] = self._kernel.new()
        if answers is not None:
            self.numerics["answers"] = answers
        self._write()

    def _write(self) -> None:
        self._journal.append(
            "progress", at=time.time(), case=self._case, progress=self.numerics, conditions=self.conditions
        )

    def _read(self, seconds: float) -> None:
        reading = dict(self._sensors.read(seconds))
        if not reading:
            return
        self.conditions.setdefault("before", reading)
        self.conditions["after"] = reading
        peak = self.conditions.setdefault("peak", {})
        for name in _PEAKS:
            if name in reading:
                peak[name] = max(reading[name], peak.get(name, reading[name]))
        hot = [name for name, limit in self._limits.items() if reading.get(name, 0.0) >= limit.value]
        self._hot = self._hot + 1 if hot else 0
        # Ignore a single high reading, which can be an error of the sensor.
        if self._hot >= LASTING_SAMPLES:
            limit = self._limits[hot[0]]
            self.numerics["stopped"] = {
                "quantity": hot[0], "value": reading[hot[0]], "limit": limit.value, "source": limit.source,
            }  # fmt: skip

    def _with_heat(self, mismatch: Mapping[str, Any]) -> dict[str, Any]:
        if mismatch["step"] not in self._described:
            reading = self.conditions.get("after", {})
            name = next((name for name in CHIP if name in reading), "")
            heat = {"temperature_c": reading[name]} if name else {}
            power = {"power_w": reading["power_w"]} if "power_w" in reading else {}
            self._described[mismatch["step"]] = {**mismatch, **heat, **power}
        return self._described[mismatch["step"]]


def of_machine(
    case: str, journal: BaseJournal, gpu: Optional[Gpu], stop_at: float, tree: Optional[Tree] = None
) -> SoakWatch:
    """Return the observer for a soak of ``gpu``, or of the processor if ``gpu`` is None."""
    tree = tree or Tree(Path("/"))
    return SoakWatch(case, journal, Sensors(gpu, tree), kernel_log(tree), stop_at)


def of_simulation(
    case: str, journal: BaseJournal, telemetry: Optional[DeviceTelemetry], stop_at: float
) -> SoakWatch:
    """Return the observer for a soak on a simulated machine."""
    log = KernelLog(lambda: ([], "the simulated machine"))
    return SoakWatch(case, journal, SimulatedSensors(telemetry), log, stop_at)
