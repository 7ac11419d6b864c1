"""Sampling of sensors, about once per second, into ``samples.jsonl`` in the run's folder.

Each device has a thread, so that a dead GPU blocks only its own samples.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

from rocmprobe import output
from rocmprobe.detect import sensors as sensing
from rocmprobe.detect.tree import Tree
from rocmprobe.model.telemetry import DeviceTelemetry, Limit, summary
from rocmprobe.text.reading import BadInput, json_line, read_bytes
from rocmprobe.text.redact import redacted

NAME = "samples.jsonl"
#: Seconds between two samples, and seconds after which this interval grows. With the growth, a day has about
#: 15 000 samples instead of 86 400.
_INTERVAL, _EVERY_SECOND_FOR = 1.0, 3600.0
#: Seconds that the end of a run waits for the sampling threads.
_PATIENCE = 1.0


class Sampler:
    """A background writer of sensor readings to the run's folder."""

    def __init__(self, folder: Path, redact: bool, tree: Tree, interval: float = _INTERVAL) -> None:
        self._path = folder / NAME
        self._redact = redact
        self._tree = tree
        self._interval = interval
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        with contextlib.suppress(OSError):
            if self._path.exists():
                # The run is resumed, and the last line of the file can be incomplete.
                output.append(self._path, b"\n")
        # Search for devices in a thread, because the search reads files that can block, too.
        self._begin(self._watch)

    def stop(self) -> None:
        """Stop sampling. No sample is written afterwards."""
        with self._lock:
            self._over.set()
        ends = time.monotonic() + _PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))

    def _begin(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True, name="rocmprobe-sampler")
        self._threads.append(thread)
        thread.start()

    def _watch(self) -> None:
        first, *others = sensing.find_devices(self._tree)
        for device in others:
            self._begin(self._sample, device)
        self._sample(first)

    def _sample(self, device: sensing.SensorDevice) -> None:
        began = time.monotonic()
        awake: Optional[bool] = None
        # If the disk is full, end only the sampling. The journal will report the error.
        with contextlib.suppress(OSError):
            while not self._over.is_set():
                reading = sensing.read(self._tree, device)
                if awake is None or (reading and not awake):
                    awake = bool(reading)
                    limits = sensing.read_limits(self._tree, device) if awake else {}
                    rows = {name: vars(limit) for name, limit in limits.items()}
                    self._append({"device": device.address, "name": device.name, "limits": rows})
                values = {name: round(value, 1) for name, value in reading.items()}
                self._append({"at": round(time.time(), 2), "device": device.address, "values": values})
                rarer = max(1.0, (time.monotonic() - began) / _EVERY_SECOND_FOR)
                self._over.wait(self._interval * rarer)

    def _append(self, record: Mapping[str, Any]) -> None:
        clean = redacted(record) if self._redact and "at" not in record else record
        with self._lock:
            if not self._over.is_set():
                output.append(self._path, (json.dumps(clean, separators=(",", ":")) + "\n").encode())


def sampled(folder: Path) -> tuple[DeviceTelemetry, ...]:
    """Return the sampled telemetry of each device. Skip invalid lines."""
    names: dict[str, str] = {}
    limits: dict[str, dict[str, Limit]] = {}
    samples: dict[str, list[tuple[float, Mapping[str, float]]]] = {}
    try:
        lines = read_bytes(folder / NAME, "").splitlines()
    except BadInput:
        return ()
    for line in lines:
        try:
            record = json_line(line)
            device = record["device"]
            if "at" in record:
                reading = {name: float(value) for name, value in record["values"].items()}
                at = float(record["at"])
                samples.setdefault(device, []).append((at, reading))
            else:
                names[device] = record["name"]
                limits[device] = {name: Limit(**row) for name, row in record["limits"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            continue
    return tuple(_summary(device, names.get(device, ""), limits.get(device, {}), samples[device])
                 for device in sorted(samples))  # fmt: skip


def _summary(
    device: str, name: str, limits: Mapping[str, Limit], samples: list[tuple[float, Mapping[str, float]]]
) -> DeviceTelemetry:
    # Sort, because the system clock can be changed during the run.
    samples = sorted(samples, key=lambda sample: sample[0])
    began = samples[0][0]
    started = datetime.fromtimestamp(began, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    since = [(at - began, reading) for at, reading in samples]
    return summary(device, name, started, since, limits)
