"""Sensor readings during a run.

A reading contains only the values that could be read. ``samples.jsonl`` has one sample per line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Optional

from rocmprobe.model.fields import Count


@dataclass(frozen=True)
class Quantity:
    """A quantity that a sensor measures.

    - ``glance``: position and text in the list of a GPU's present readings
    - ``condition``: True if the quantity can affect a measurement
    - ``limit_rank``: importance of a GPU temperature's limit, where 1 is the most important. 0 for all other
      quantities.
    """

    name: str
    unit: str = ""
    words: str = ""
    short: str = ""
    glance: Optional[tuple[int, str]] = None
    condition: bool = False
    limit_rank: int = 0


#: Quantities by name. A new quantity also needs a reader (``detect.gpus.amdgpu.SENSORS``) and, if it is a
#: fact of the machine, a field of ``Gpu``. ``temperature_c`` is the temperature of a CPU. The last two
#: quantities are 1 if the driver reports that it lowers the clocks, else 0. The reason is heat for
#: ``throttled_heat``, and power or current for ``throttled_power``.
QUANTITIES: Mapping[str, Quantity] = {row.name: row for row in (
    Quantity("temperature_edge_c", "°C", "temperature, edge", "edge",
             glance=(1, "edge {} °C"), condition=True, limit_rank=3),
    Quantity("temperature_junction_c", "°C", "temperature, junction", "junction",
             glance=(2, "junction {} °C"), condition=True, limit_rank=1),
    Quantity("temperature_memory_c", "°C", "temperature, memory", "memory",
             glance=(3, "memory {} °C"), condition=True, limit_rank=2),
    Quantity("temperature_c", "°C", "temperature", "temperature", condition=True),
    Quantity("fan_rpm", "rpm", "fan", "fan turns", glance=(5, "fan {} rpm")),
    Quantity("fan_percent", "%", "fan, driven at", "fan"),
    Quantity("power_w", "W", "power", "power", glance=(4, "{} W"), condition=True),
    Quantity("core_clock_mhz", "MHz", "clock, core", "core clock",
             glance=(6, "core {} MHz"), condition=True),
    Quantity("memory_clock_mhz", "MHz", "clock, memory", "memory clock",
             glance=(7, "memory {} MHz"), condition=True),
    Quantity("vram_used_bytes", "B", "GPU memory in use", "GPU memory"),
    Quantity("busy_percent", "%", "busy", "busy", glance=(8, "{} % busy")),
    Quantity("throttled_heat"),
    Quantity("throttled_power"),
)}  # fmt: skip
_ROWS = tuple(QUANTITIES.values())
#: Quantities that ``rocmprobe monitor`` shows, in this order.
WATCHED = tuple(QUANTITIES[name] for name in (
    "temperature_junction_c", "temperature_edge_c", "temperature_memory_c", "temperature_c", "fan_percent",
    "fan_rpm", "power_w", "core_clock_mhz", "memory_clock_mhz", "vram_used_bytes", "busy_percent",
))  # fmt: skip
CONDITIONS = tuple(sorted((row for row in _ROWS if row.condition), key=lambda row: row.unit != "MHz"))
#: Temperatures of a GPU that have a limit, the most relevant first.
TEMPERATURES = tuple(row.name for row in sorted(_ROWS, key=lambda row: row.limit_rank) if row.limit_rank)
#: Number of consecutive samples, and of seconds, that a finding needs. A shorter peak proves nothing.
LASTING_SAMPLES, LASTING_SECONDS = 3, 5.0
#: Limit of readings. Values of this size or larger are errors.
_LARGEST = 1e18
#: Number of samples of each device that results keep in addition to the hottest samples.
POINTS = 300
#: (seconds, reading) of each sample.
Samples = Sequence[tuple[float, Mapping[str, float]]]


@dataclass(frozen=True)
class Limit:
    """Highest value that a quantity should reach, in the quantity's unit."""

    value: float
    source: str


@dataclass(frozen=True)
class Series:
    """Values of a quantity at ``DeviceTelemetry.seconds``, and minimum, median and maximum of all samples."""

    min: Optional[float]
    median: Optional[float]
    max: Optional[float]
    values: tuple[Optional[float], ...]


@dataclass(frozen=True)
class DeviceTelemetry:
    """The readings of one device.

    - ``device``: PCI address, or "cpu"
    - ``started``: time of the first sample (UTC)
    - ``asleep``: number of samples in which the device slept
    - ``seconds``: times of the kept samples, since ``started``
    - ``numbers``: indexes of the kept samples among all samples, or empty if all were kept
    - ``limits``: keyed by quantity
    """

    device: str
    name: str
    started: str
    samples: Count
    asleep: Count = 0
    seconds: tuple[Optional[float], ...] = ()
    values: Mapping[str, Series] = field(default_factory=dict)
    limits: Mapping[str, Limit] = field(default_factory=dict)
    numbers: tuple[Count, ...] = ()

    def limit(self, quantity: str) -> Optional[float]:
        limit = self.limits.get(quantity)
        return limit.value if limit else None

    def moments(self) -> list[Mapping[str, float]]:
        """Return the kept readings, one for each entry in ``seconds``."""
        return [
            {
                name: value
                for name, series in self.values.items()
                if (value := _at(series.values, index)) is not None
            }
            for index in range(len(self.seconds))
        ]


def _at(values: Sequence[Optional[float]], index: int) -> Optional[float]:
    value = values[index] if index < len(values) else None
    return value if value is not None and abs(value) < _LARGEST else None


def is_sustained(seconds: Sequence[float]) -> bool:
    """Return True if ``seconds`` has at least 3 sample times that span at least 5 seconds."""
    return len(seconds) >= LASTING_SAMPLES and round(seconds[-1] - seconds[0], 1) >= LASTING_SECONDS


def summary(
    device: str,
    name: str,
    started: str,
    samples: Samples,
    limits: Mapping[str, Limit],
) -> DeviceTelemetry:
    """Return the telemetry of a device.

    ``samples`` are pairs of a time (seconds since ``started``) and a reading. If there are more than POINTS
    samples, keep at most POINTS of them, at regular intervals. Also keep two sustained periods for each
    temperature with a limit: the hottest period, and the hottest period with the fan stopped.
    """
    samples = [(round(seconds, 1), reading) for seconds, reading in samples]
    numbers = set(range(0, len(samples), math.ceil(len(samples) / POINTS) or 1))
    if len(numbers) < len(samples):
        for quantity in set(TEMPERATURES) & set(limits):
            heat = [reading.get(quantity) for _, reading in samples]
            still = [reading.get(quantity) if reading.get("fan_rpm") == 0 else None for _, reading in samples]
            numbers.update(_highest(samples, heat), _highest(samples, still))
    kept = [samples[number] for number in sorted(numbers)]
    measured = [quantity for quantity in QUANTITIES if any(quantity in reading for _, reading in samples)]
    return DeviceTelemetry(
        device=device,
        name=name,
        started=started,
        samples=len(samples),
        asleep=sum(not reading for _, reading in samples),
        seconds=tuple(seconds for seconds, _ in kept),
        values={quantity: _series(quantity, samples, kept) for quantity in measured},
        limits=dict(limits),
        numbers=tuple(sorted(numbers)) if len(kept) < len(samples) else (),
    )


def _highest(samples: Samples, values: Sequence[Optional[float]]) -> range:
    """Return the sample indexes of the sustained period whose smallest value is the largest.

    ``is_sustained`` defines how long a sustained period is.
    """
    best, hottest = -math.inf, range(0)
    for stretch in _stretches([seconds for seconds, _ in samples]):
        inside = [value for number in stretch if (value := values[number]) is not None]
        if len(inside) == len(stretch) and min(inside) >= best:
            best, hottest = min(inside), stretch
    return hottest


def _stretches(seconds: Sequence[float]) -> Iterator[range]:
    end = 0
    for start in range(len(seconds)):
        while end < len(seconds) and not is_sustained(seconds[start:end]):
            end += 1
        if not is_sustained(seconds[start:end]):
            return
        yield range(start, end)


def _series(quantity: str, samples: Samples, kept: Samples) -> Series:
    every = [reading[quantity] for _, reading in samples if quantity in reading]
    values = tuple(reading.get(quantity) for _, reading in kept)
    return Series(min(every), median(every), max(every), values)


def simulated_telemetry(row: Mapping[str, Any]) -> DeviceTelemetry:
    """Return the telemetry in the file of a simulated machine. Raise ValueError if ``row`` is invalid.

    ``row`` has ``device``, ``name``, ``seconds``, and the tables ``values`` and ``limits``.
    """
    for key in ("device", "name", "seconds", "values", "limits"):
        if key not in row:
            raise ValueError(f"telemetry: {key!r} is missing")
    if len(row) > 5:
        raise ValueError("telemetry: only device, name, seconds, values and limits are known")
    seconds, values, limits = row["seconds"], row["values"], row["limits"]
    if not isinstance(values, dict) or not isinstance(limits, dict):
        raise ValueError("telemetry: 'values' and 'limits' must be tables")
    for quantity in (*values, *limits):
        if quantity not in QUANTITIES:
            raise ValueError(f"telemetry: {quantity!r} is not one of {', '.join(QUANTITIES)}")
    for name, numbers in (("seconds", seconds), *values.items(), ("limits", list(limits.values()))):
        if not isinstance(numbers, list) or not all(type(number) in (int, float) for number in numbers):
            raise ValueError(f"telemetry: {name!r} must contain numbers")
    if any(len(numbers) != len(seconds) for numbers in values.values()):
        raise ValueError("telemetry: every series must be as long as 'seconds'")
    samples = [
        (float(second), {quantity: float(numbers[index]) for quantity, numbers in values.items()})
        for index, second in enumerate(seconds)
    ]
    thresholds = {
        quantity: Limit(float(value), "the simulated machine") for quantity, value in limits.items()
    }
    return summary(str(row["device"]), str(row["name"]), "", samples, thresholds)
