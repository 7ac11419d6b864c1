"""Recognition of hangs: signs of life of a worker that sends no events, and rules that judge the signs.

Two signs of the Linux kernel are not used. The engine times in a DRM file's fdinfo come from the contexts of
the DRM scheduler (amdgpu_fdinfo.c), so queues of KFD, which ROCm uses, are not counted. The file cu_occupancy
of KFD exists only for gfx9 in released kernels (get_cu_occupancy in amdgpu_amdkfd_*.c).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Optional

from rocmprobe.detect.sensors import read_busy
from rocmprobe.detect.tree import Tree
from rocmprobe.engine.budgets import Limits
from rocmprobe.process.processes import active_seconds, bytes_read, has_compiler, new_pages

#: Percentage points by which a GPU that computes is busier than the desktop was before.
_BUSIER = 30
#: Busiest desktop beside which a GPU that computes can be recognised.
_MOST_IDLE = 60
#: Fraction of the readings that must agree.
_MOSTLY = 0.8
#: New memory pages per second of a process that compiles. GCC's slowest passes needed more than 100, a loop
#: that waits for a GPU needs none.
_COMPILER_PAGES = 5
#: If more threads than this are busy, the worker computes. A wait for a GPU keeps at most two threads busy:
#: the caller, and ROCr's thread for events if HSA_ENABLE_INTERRUPT is 0. An emulated GPU keeps three.
_WAITING_THREADS = 2.5
#: Activities that the progress shows as "compiling".
COMPILING = ("compiler-child", "compiling")
#: Default folders for databases and compiled kernels, keyed by the environment variable for their path.
_FOLDERS = {
    "MIOPEN_USER_DB_PATH": "~/.config/miopen",
    "MIOPEN_CUSTOM_CACHE_DIR": "~/.cache/miopen",
    "AMD_COMGR_CACHE_DIR": "~/.cache/comgr",
    "TRITON_CACHE_DIR": "~/.triton/cache",
}


@dataclass(frozen=True)
class Sample:
    """Counters of a worker and of its GPU at one time.

    - ``at``: seconds since the last event
    - ``gpu``: percentage of time in which the GPU was busy, or None if unknown
    - ``cpu``: seconds in which the worker ran, or waited for a CPU core
    - ``pages``: number of memory pages that the worker used for the first time
    - ``read``: number of bytes read from files
    - ``stored``: size of the databases and of the caches of compiled kernels
    - ``compiler``: True if the worker has started a compiler that still runs
    """

    at: float
    gpu: Optional[float] = None
    cpu: float = 0.0
    pages: int = 0
    read: int = 0
    stored: int = 0
    compiler: bool = False


@dataclass(frozen=True)
class Verdict:
    """The activity of a worker, and the number of seconds without an event after which it hangs.

    ``activity`` is "compiler-child", "compiling", "gpu-busy", "busy" (the CPU) or "idle".
    """

    activity: str
    limit: float


def judge(samples: Sequence[Sample], limits: Limits, idle_percent: float = 0.0) -> Verdict:
    """Judge the last ``limits.stall`` seconds of ``samples``.

    ``idle_percent`` is the load of the GPU before the run.

    A worker that compiles or reads files has time until ``limits.most``. If nothing compiles, and the GPU is
    busy all the time or the GPU and the CPU are idle, the worker hangs. A busy CPU beside an idle GPU is a
    loop that waits for the GPU, unless the worker also uses new memory, as every compiler does: such a loop
    is a hang, too. If the load of the GPU is unknown or changes, the limit is ``limits.blind``, or
    ``limits.computing`` if more threads are busy than wait for a GPU, e.g. those of an emulated GPU.
    """
    now = samples[-1].at
    window = [each for each in samples if each.at >= now - limits.stall]
    first, last = window[0], window[-1]
    seconds = last.at - first.at
    gpu = _gpu_is_busy(window, idle_percent)
    cpu_seconds = last.cpu - first.cpu
    cpu = cpu_seconds > seconds / 4
    new_memory = last.pages - first.pages >= max(1.0, _COMPILER_PAGES * seconds)
    compiler = any(each.compiler for each in window)
    stored = last.stored != first.stored
    if compiler:
        activity = "compiler-child"
    elif stored or (cpu and new_memory and gpu is False):
        activity = "compiling"
    else:
        activity = "gpu-busy" if gpu else "busy" if cpu else "idle"
    if compiler or stored or new_memory or last.read > first.read:
        return Verdict(activity, limits.most)
    if gpu is None:
        limit = min(limits.blind, limits.most)
        if cpu_seconds > _WAITING_THREADS * seconds:
            limit = max(limit, limits.computing)
        return Verdict(activity, limit)
    if cpu and not gpu and limits.cpu_computes:
        return Verdict(activity, limits.most)
    # On a machine under load, the first sample can come late.
    late = first.at if seconds < _MOSTLY * limits.stall else 0.0
    return Verdict(activity, min(late + limits.stall, limits.most))


def _gpu_is_busy(samples: Sequence[Sample], idle_percent: float) -> Optional[bool]:
    """Return True or False if the GPU is busy or idle most of the time, else None."""
    readings = [each.gpu > idle_percent + _BUSIER for each in samples if each.gpu is not None]
    if idle_percent > _MOST_IDLE or len(readings) < _MOSTLY * len(samples):
        return None
    share = sum(readings) / len(readings)
    return True if share >= _MOSTLY else False if share <= 1 - _MOSTLY else None


class BusySensor:
    """The sensor ``gpu_busy_percent`` in a device's folder. ``idle_percent`` is the load at the start."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._reading: Optional[threading.Thread] = None
        self._percent: Optional[float] = None
        readings = []
        for _ in range(5):
            readings.append(self.read())
            if readings[-1] is None:
                break
            # The sensor shows an average of a short time, in which a desktop can draw a picture.
            time.sleep(0.1)
        self.idle_percent = median(each or 0.0 for each in readings)

    def read(self) -> Optional[float]:
        """Return the load in percent. Return None if there is no sensor, or if it does not answer in 1 s."""
        # Reading from a hung GPU can block forever, so at most one thread waits for it.
        if self._reading is None or not self._reading.is_alive():
            self._percent = None
            self._reading = threading.Thread(target=self._read, daemon=True)
            self._reading.start()
            self._reading.join(1.0)
        return None if self._reading.is_alive() else self._percent

    def _read(self) -> None:
        self._percent = read_busy(Tree(Path("/")), self._folder)


class Watch:
    """The signs of life of a worker, from the beginning of a silence.

    ``sensor`` is None if the worker computes on the CPU.
    """

    def __init__(
        self, pid: int, environ: Mapping[str, str], sensor: Optional[BusySensor], limits: Limits
    ) -> None:
        self._pid = pid
        self._folders = [Path(environ.get(name) or path) for name, path in _FOLDERS.items()]
        self._sensor = sensor
        self._limits = limits
        self._begun = time.monotonic()
        self._samples: list[Sample] = []
        #: Seconds between two samples.
        self.interval = max(0.1, min(1.0, limits.stall / 20))

    @property
    def waited(self) -> float:
        """The number of seconds since the silence began."""
        return time.monotonic() - self._begun

    def look(self) -> Verdict:
        """Take a sample and return the verdict on all samples."""
        self._samples.append(self._sample())
        return judge(self._samples, self._limits, self._sensor.idle_percent if self._sensor else 0.0)

    def _sample(self) -> Sample:
        return Sample(
            self.waited, self._sensor.read() if self._sensor else None, active_seconds(self._pid),
            new_pages(self._pid), bytes_read(self._pid), sum(map(_size, self._folders)),
            has_compiler(self._pid),
        )  # fmt: skip


def _size(folder: Path) -> int:
    size = 0
    for path, _, names in os.walk(folder.expanduser()):
        for name in names:
            try:
                size += 1 + os.lstat(os.path.join(path, name)).st_size
            except OSError:
                # A library removes its temporary files.
                continue
    return size
