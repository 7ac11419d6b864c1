"""``rocmprobe monitor``: shows the sensors of every AMD GPU, and writes CSV."""

from __future__ import annotations

import csv
import io
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rocmprobe import output
from rocmprobe.cli.base import describe_holder, exit_code_command, needs_linux
from rocmprobe.detect import sensors as sensing
from rocmprobe.detect.tree import Tree
from rocmprobe.engine.journal import CannotWrite
from rocmprobe.judge.findings.alarms import alarms
from rocmprobe.model.exit_codes import OK
from rocmprobe.model.results import BadInput, NothingToTest
from rocmprobe.model.telemetry import QUANTITIES, WATCHED, Quantity
from rocmprobe.text.console import Console
from rocmprobe.text.readable import bytes_

_HEADER = ("time", "device", "name", *QUANTITIES, "alarms")
#: A GPU is reported as silent if it gives no reading for this many seconds.
_PATIENCE = 5.0


@click.command("monitor")
@click.option(
    "--csv", type=click.Path(path_type=Path), metavar="FILE", help="Also append every reading to FILE."
)
@click.option("--root", type=click.Path(path_type=Path, exists=True), default=Path("/"), hidden=True)
@exit_code_command
def monitor_command(csv: Optional[Path], root: Path) -> int:
    """Show the sensors of every AMD GPU, live.

    Shows temperatures, fan, power, clocks and memory during a long training. Ctrl-C ends it. Exits 3 if there
    is no AMD GPU.

    \b
    Example:
      rocmprobe monitor --csv training.csv
    """
    if why := needs_linux("monitor"):
        raise NothingToTest(why)
    monitor(root, csv)
    return OK


class Watched:
    """A device whose sensors are read in a separate thread."""

    def __init__(self, tree: Tree, device: sensing.SensorDevice, interval: float) -> None:
        self.device = device
        self.reading: Mapping[str, float] = {}
        self.limits: Mapping[str, float] = {}
        self.extremes: dict[str, tuple[float, float]] = {}
        self._answered = time.monotonic()
        self._first = threading.Event()
        self._ended = threading.Event()
        # One thread per device, so that a hanging read does not stop other devices.
        threading.Thread(target=self._read, args=(tree, interval), daemon=True).start()

    @property
    def silent(self) -> float:
        """Seconds since the last reading, or 0 if readings arrive regularly."""
        waited = time.monotonic() - self._answered
        return waited if waited > _PATIENCE else 0.0

    @property
    def alarms(self) -> tuple[str, ...]:
        if self.silent:
            return (f"no answer for {self.silent:.0f} s",)
        return alarms(self.reading, self.limits)

    @property
    def used(self) -> str:
        """Description of the rocmprobe run that uses the device now, or ""."""
        return describe_holder(f"GPU {self.device.address}")

    def wait(self, seconds: float) -> None:
        """Wait for the first reading, at most ``seconds``."""
        self._first.wait(seconds)

    def end(self) -> None:
        """Stop the thread after its current read."""
        self._ended.set()

    def _read(self, tree: Tree, interval: float) -> None:
        while not self._ended.is_set():
            reading = sensing.read(tree, self.device)
            if reading and not self.limits:
                limits = sensing.read_limits(tree, self.device)
                self.limits = {name: limit.value for name, limit in limits.items()}
            for name, value in reading.items():
                least, most = self.extremes.get(name, (value, value))
                self.extremes[name] = min(least, value), max(most, value)
            self.reading, self._answered = reading, time.monotonic()
            self._first.set()
            self._ended.wait(interval)


def monitor(root: Path, csv_file: Optional[Path], interval: float = 1.0, times: Optional[int] = None) -> None:
    """Show the sensors of the machine below ``root`` every ``interval`` seconds, until Ctrl-C or SIGTERM.

    On a terminal, show a live table. Elsewhere, print plain lines, or print nothing if ``csv_file`` is given.
    In both cases, append the readings to ``csv_file`` if given.

    Raise NothingToTest if there is no AMD GPU. Raise BadInput if ``csv_file`` cannot be written, or is not
    from `rocmprobe monitor`. Raise CannotWrite if a later write fails.
    """
    tree, console = Tree(root), Console()
    devices = [device for device in sensing.find_devices(tree) if device.folder]
    if not devices:
        raise NothingToTest("no AMD GPU with sensors found (looked for hwmon below /sys)")
    if csv_file:
        _begin(csv_file)
    with _ended_by_signals(), _watching(tree, devices, interval) as watched:
        if not console.is_terminal:
            for _ in _ticks(interval, times):
                _append(csv_file, watched) if csv_file else _print_readings(watched, console)
            return
        with Live(_picture(watched), console=console, auto_refresh=False) as live:
            for _ in _ticks(interval, times):
                live.update(_picture(watched), refresh=True)
                if csv_file:
                    _append(csv_file, watched)


@contextmanager
def _watching(
    tree: Tree, devices: Sequence[sensing.SensorDevice], interval: float
) -> Iterator[Sequence[Watched]]:
    watched = [Watched(tree, device, interval) for device in devices]
    try:
        for gpu in watched:
            gpu.wait(_PATIENCE)
        yield watched
    finally:
        for gpu in watched:
            gpu.end()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Make Ctrl-C and SIGTERM end the ``with`` block without an exception."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


def _ticks(interval: float, times: Optional[int]) -> Iterator[int]:
    began, number = time.monotonic(), 0
    while times is None or number < times:
        yield number
        number += 1
        time.sleep(max(0.0, began + number * interval - time.monotonic()))


def _begin(path: Path) -> None:
    header = ",".join(_HEADER).encode()
    try:
        output.append(path, b"")
        if path.is_file():
            with path.open("rb") as stream:
                first = stream.readline(1000)
            if first and first.strip() != header:
                raise BadInput(f"{path}: is not a file of `rocmprobe monitor`; name another")
            output.append(path, b"" if first else header + b"\n")
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror}); name another") from error


def _append(path: Path, watched: Sequence[Watched]) -> None:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for gpu in watched:
        reading = {} if gpu.silent else gpu.reading
        values = [_plain(reading.get(name)) for name in QUANTITIES]
        writer.writerow([now, gpu.device.address, gpu.device.name, *values, "; ".join(gpu.alarms)])
    try:
        output.append(path, text.getvalue().encode())
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror, str(path)) from error


def _plain(value: Optional[float]) -> str:
    return "" if value is None else f"{value:.1f}".removesuffix(".0")


def _shown(quantity: Quantity, value: Optional[float]) -> str:
    if value is None:
        return ""
    return bytes_(value) if quantity.unit == "B" else f"{value:.0f} {quantity.unit}"


def _print_readings(watched: Sequence[Watched], console: Console) -> None:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    for gpu in watched:
        words = [
            f"{row.short} {_shown(row, gpu.reading[row.name])}"
            for row in WATCHED
            if row.name in gpu.reading and not gpu.silent
        ]
        said = ", ".join(words) or ("" if gpu.silent else "asleep, not woken")
        used = f"  in use: {gpu.used}" if gpu.used else ""
        alarm = f"  ALARM: {'; '.join(gpu.alarms)}" if gpu.alarms else ""
        line = f"{now}  {gpu.device.address}  {said}{used}{alarm}"
        console.print(line, soft_wrap=True)


def _picture(watched: Sequence[Watched]) -> RenderableType:
    # Alarms are on top, so that they are visible even in a terminal with few rows.
    parts: list[RenderableType] = [
        Text(f"ALARM: {words}" + (f" ({gpu.device.address})" if len(watched) > 1 else ""), style="bold red")
        for gpu in watched
        for words in gpu.alarms
    ]
    for gpu in watched:
        table = Table(title=Text(f"{gpu.device.name} ({gpu.device.address})"), title_justify="left")
        table.add_column("")
        for column in ("now", "least", "most", "limit"):
            table.add_column(column, justify="right", min_width=9)
        for row in WATCHED:
            if (name := row.name) in gpu.extremes:
                cells = (gpu.reading.get(name), *gpu.extremes[name], gpu.limits.get(name))
                table.add_row(row.short, *(_shown(row, value) for value in cells))
        parts.append(table)
        if not gpu.reading and not gpu.silent:
            parts.append(Text("asleep, not woken", style="dim"))
        if gpu.used:
            parts.append(Text(f"in use: {gpu.used}"))
    return Group(*parts, Text("Press Ctrl-C to stop", style="dim"))
