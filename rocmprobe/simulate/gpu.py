"""A simulated machine in a worker.

This module does not import torch, because a fault can happen before torch is imported.
"""

from __future__ import annotations

import mmap
import os
import random
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Optional

from rocmprobe.backends import Backend
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.compiler import Compiler
from rocmprobe.knowledge.settings import Versions
from rocmprobe.knowledge.solvers import TRANSPOSED
from rocmprobe.simulate.injector import Injector
from rocmprobe.simulate.machines import Fault, SimulatedMachine

#: Parts of two MIOpen messages, keyed by direction. The message about the chosen solver contains the function
#: and the abbreviated direction. The error for a missing solver contains the line number and the direction.
_CALLS = {
    "fwd": ("FindConvFwdAlgorithm", "FW", 518, "Forward"),
    "bwd-data": ("FindConvBwdDataAlgorithm", "BWD", 892, "Backward Data"),
    "bwd-weights": ("FindConvBwdWeightsAlgorithm", "BWrW", 1107, "Backward Weights"),
}
_INCORRECT = "{} Convolution cannot be executed due to incorrect params"
_NO_SOLVER = "No suitable algorithm was found to execute the required convolution"
_LEVEL_OF_CHOICE = 5
_FLOOD_BYTES = 64 << 20
_CHUNK = 1 << 16
#: Number of bytes that a process can allocate until its simulated memory is full.
_MEMORY_BYTES = 128 << 20
#: Seconds that a step of the check soak takes on the simulated clock. With long steps, a few steps suffice.
_SOAK_STEP = 5.0


class SimulatedCpu(Injector):
    """The CPU of a simulated machine."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self.machine = machine

    def versions(self, found: Versions) -> Versions:
        facts = self.machine.machine
        rocm = facts.value("torch.hip") or facts.value("hip.version") or facts.value("rocm.version")
        return Versions(found.library, found.library_version, facts.value("torch.version"), rocm)

    def mapped(self) -> dict[str, list[str]]:
        return {}


class SimulatedGpu(SimulatedCpu):
    """A simulated GPU in one process under one setting."""

    def __init__(self, machine: SimulatedMachine, setting: str, name: str, events: int) -> None:
        super().__init__(machine)
        self.name = name
        #: True while a convolution is inside the library that replaces MIOpen.
        self.in_miopen = False
        self._faults = tuple(filter(machine.has_fault, machine.faults))
        self._pid = os.getpid()
        self._setting = setting
        self._events = events
        self._phase = "import"
        self._injected: set[int] = set()
        self._poisoned = False
        self._steady_calls = 0
        self._searched: set[object] = set()
        self._added_seconds = 0.0
        self.environ: Mapping[str, str] = os.environ
        # MIOpen 2.x reports incorrect parameters instead of a missing solver.
        version = str(machine.machine.value("miopen.version") or "3")
        self._no_solver = _INCORRECT if version.startswith("2.") else _NO_SOLVER
        self._tried = lru_cache(maxsize=None)(self._solvers_tried)

    def _solvers_tried(self, problem: str, direction: str) -> tuple[str, ...]:
        return self.machine.in_play(problem, direction, self.name, self.environ)

    def enter(self, phase: str, case: Optional[Case]) -> None:
        self._phase = phase
        self._steady_calls = 0
        if phase == "import":
            self._show_load(0)
        if case is None:
            return
        direction = case.direction or ""
        for fault in self._faults:
            applies = fault.phase == phase and self.matches(fault, case.problem or "", case.dtype, direction)
            if applies and self.happens(fault):
                self.inject(fault, (direction,))

    def report(self, phase: str, case: Case) -> None:
        if phase == "yardstick":
            self.enter(phase, case)
        else:
            # Do not call ``enter``, which triggers faults. A check reports "prepare" again after its first
            # calls, and this second report must not trigger a second fault.
            self._phase = phase
            self._steady_calls += phase == "steady"
            self._added_seconds += _SOAK_STEP * (case.check == "soak" and phase == "steady")

    def check_context(self) -> None:
        if self._poisoned:
            raise RuntimeError("the device context is unusable")

    def clock(self) -> float:
        # Simulated work does not wait, so add the time that it should take.
        return time.perf_counter() + self._added_seconds

    def device(self, device: str, backend: Backend) -> tuple[str, Backend]:
        from rocmprobe.simulate.libraries import SimulatedMiopen

        return "cpu", SimulatedMiopen(self.machine)

    def compiler(self) -> Compiler:
        from rocmprobe.simulate.libraries import SimulatedCompiler

        return SimulatedCompiler(self)

    def faults(self) -> Callable[[], AbstractContextManager[None]]:
        from rocmprobe.simulate.libraries import library_faults

        return library_faults(self)

    def faults_of(self, *libraries: str) -> Iterator[Fault]:
        """Yield the faults that can happen in a call of ``libraries`` in the current phase."""
        for fault in self._faults:
            in_phase = fault.phase == "first-call" or fault.phase == "steady" == self._phase
            if in_phase and fault.library in libraries and self._steady_calls >= fault.after:
                yield fault

    def matches(self, fault: Fault, problem: str, dtype: str, direction: str) -> bool:
        """Return True if ``fault`` matches these arguments, the setting and the environment."""
        return fault.matches(self._setting, problem, dtype, direction, self.environ)

    def convolution(
        self, library: str, problem: str, dtype: str, directions: tuple[str, ...]
    ) -> tuple[Optional[Fault], tuple[str, ...]]:
        """Inject the first fault that matches a convolution in ``library``.

        Return the fault and the directions with wrong results, or (None, ()) if no result is wrong.
        """
        self.check_context()
        tried = {d: self._tried(problem, d) if library == "miopen" else () for d in directions}
        for fault in self.faults_of(library):
            affected = tuple(
                d
                for d in directions
                if self.matches(fault, problem, dtype, d)
                and (not fault.solver or set(fault.solver) & set(tried[d]))
            )
            if fault.operator or not affected or not self.happens(fault):
                continue
            wrong = fault.effect in ("wrong", "flip")
            if wrong and library == "miopen" and not fault.stderr:
                faulty = {d: [n for n in tried[d] if n in fault.solver] or tried[d] for d in affected}
                self._log_choice(problem, faulty)
            self.inject(fault, affected, problem)
            if fault.effect not in ("search", "compile"):
                return (fault, affected) if wrong else (None, ())
        if library == "miopen":
            self._log_choice(problem, tried)
        return None, ()

    def _log_choice(self, problem: str, tried: Mapping[str, Sequence[str]]) -> None:
        """Log the solver of each direction as MIOpen does. Raise RuntimeError if a direction has none."""
        for direction, names in tried.items():
            asked = TRANSPOSED[direction] if problem.startswith("conv_transpose") else direction
            function, word, line, failing = _CALLS[asked]
            if names and int(self.environ.get("MIOPEN_LOG_LEVEL", "0")) >= _LEVEL_OF_CHOICE:
                self.log(f"MIOpen(HIP): Info [{function}] {word} Chosen Algorithm: {names[0]} , 0, 0.02")
            if not names:
                place = f"MIOpen Error: /MIOpen/src/ocl/convolutionocl.cpp:{line}: "
                self.log(place + self._no_solver.format(failing))
                raise RuntimeError("miopenStatusUnknownError")

    def operator(self, libraries: tuple[str, ...], name: str, dtype: str, changeable: bool = True) -> bool:
        """Inject the faults that match an operator in ``libraries``. Return True if its result is wrong.

        A result that is not ``changeable``, e.g. a number, is never wrong.
        """
        for fault in self.faults_of(*libraries):
            applies = fault.concerns_operators and re.search(fault.operator, name)
            if applies and self.matches(fault, "", dtype, "") and self.happens(fault):
                self.inject(fault, ())
                if fault.effect == "wrong" and changeable:
                    return True
        return False

    def log(self, line: str) -> None:
        """Write a line of a library's log."""
        os.write(2, f"{line}\n".encode())

    def happens(self, fault: Fault) -> bool:
        """Choose at random whether a matching fault happens in this call. Return True if it happens."""
        if fault.effect == "flip" and id(fault) in self._injected:
            return False
        if fault.forked and os.getpid() == self._pid:
            return False
        return random.random() < fault.chance  # noqa: S311

    def inject(self, fault: Fault, directions: tuple[str, ...], problem: str = "") -> None:
        """Apply the effect of ``fault``, which can end or block the process or raise RuntimeError."""
        if fault.effect in ("search", "compile"):
            search = id(fault), problem, directions
            if search in self._searched:
                return
            self._searched.add(search)
            if fault.effect == "search":
                self._added_seconds += fault.seconds
                return
        for direction, text in fault.stderr.items():
            if not directions or direction in ("any", *directions):
                self.log(text)
        if fault.effect in ("flood", "garbage", "grandchild") and id(fault) in self._injected:
            return
        self._injected.add(id(fault))
        self._poisoned |= fault.poisons
        if fault.gpu_busy_percent:
            self._show_load(fault.gpu_busy_percent)
        _break(fault, self._events)
        if fault.gpu_busy_percent:
            self._show_load(0)

    def _show_load(self, percent: int) -> None:
        """Write the load of the GPU to the file of its sensor, which is in the folder of the worker."""
        if self.machine.has_sensor(self.name):
            Path("gpu_busy_percent").write_text(f"{percent}\n")


def _break(fault: Fault, events: int) -> None:
    effect = fault.effect
    if effect == "raise":
        raise RuntimeError(fault.message)
    if effect == "signal":
        os.kill(os.getpid(), getattr(signal, fault.signal))
    if effect == "flood":
        for _ in range(_FLOOD_BYTES // _CHUNK):
            os.write(1, b"x" * (_CHUNK - 1) + b"\n")
    if effect == "garbage":
        os.write(events, b'\x00\xff not an event\n{"event": "ans')
    if effect == "memory":
        _allocate()
    if effect == "compile":
        _compile(fault.seconds)
    if effect.startswith("grandchild"):
        _leave_grandchild()
    if effect in ("exit", "grandchild-exit"):
        os._exit(3)
    if effect == "ignore-term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while effect in ("signal", "hang", "ignore-term"):
        time.sleep(1)
    while effect == "busy":
        # Compute in C and hold the GIL, as a driver in a busy loop would.
        pow(3, 1 << 100_000, (1 << 100_000) - 1)


def _compile(seconds: float) -> None:
    """Use the CPU and new memory as a compiler does that runs in this process."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        with mmap.mmap(-1, _CHUNK) as memory:
            memory.write(bytes(_CHUNK))
        pow(3, 1 << 1_000, (1 << 1_000) - 1)


def _allocate() -> None:
    """Allocate until this process has no memory left."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * os.sysconf("SC_PAGE_SIZE") + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    held = []
    try:
        while True:
            held.append(bytearray(_CHUNK << 8))
    finally:
        held.clear()
        resource.setrlimit(resource.RLIMIT_AS, before)


def _leave_grandchild() -> None:
    if os.fork() == 0:
        while True:
            signal.pause()
