"""What a fault of a simulated machine does to the process that it strikes."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from pathlib import Path
from typing import Optional

from rocmprobe.checks.tools.case import Case
from rocmprobe.simulate.machines import Fault, SimulatedMachine

_FLOOD_BYTES = 64 << 20
_CHUNK = 1 << 16
#: What a process may allocate beyond what it has when its memory is to run out.
_MEMORY_BYTES = 128 << 20


class ProcessFaults:
    """The faults of ``machine`` in one process under one setting. ``phase`` is the current one, ``events``
    the pipe on which it answers."""

    def __init__(self, machine: SimulatedMachine, setting: str, events: int) -> None:
        self.phase = "import"
        #: Whether a convolution is inside the library that replaces MIOpen.
        self.in_miopen = False
        self._faults = machine.faults
        self._setting = setting
        self._events = events
        self._struck: set[int] = set()
        self._poisoned = False
        self._searched: set[object] = set()
        self._search_seconds = 0.0

    def clock(self) -> float:
        """Seconds, with those that searches for a solver would have taken: nobody waits for these."""
        return time.perf_counter() + self._search_seconds

    def enter(self, phase: str, case: Optional[Case]) -> None:
        """Go on to a phase in which no library is called, and apply its faults."""
        self.phase = phase
        for fault in self._faults:
            if fault.phase == phase and case is not None:
                direction = case.direction or ""
                applies = fault.matches(
                    self._setting, case.problem or "", case.dtype, direction, os.environ
                ) and self.strikes_now(fault)
                if applies:
                    self.strike(fault, (direction,))

    def strikes_now(self, fault: Fault) -> bool:
        """Whether a fault that matches takes effect in this call."""
        return random.random() < fault.chance  # noqa: S311

    def refuse_if_poisoned(self) -> None:
        """Raises where an earlier fault has left the device context unusable."""
        if self._poisoned:
            raise RuntimeError("the device context is unusable")

    def in_library(self, fault: Fault) -> bool:
        """Whether a fault is one of those that strike inside a library in the phase at hand."""
        return fault.phase == "first-call" or fault.phase == "steady" == self.phase

    def strike(self, fault: Fault, directions: tuple[str, ...], problem: str = "") -> None:
        """Returns where the process goes on. What floods or leaves something behind does so once, a search
        happens once for each ``problem`` and its directions."""
        if fault.effect == "search":
            search = id(fault), problem, directions
            self._search_seconds += 0.0 if search in self._searched else fault.seconds
            self._searched.add(search)
            return
        for direction, text in fault.stderr.items():
            if not directions or direction in ("any", *directions):
                os.write(2, f"{text}\n".encode())
        if fault.effect in ("flood", "garbage", "grandchild") and id(fault) in self._struck:
            return
        self._struck.add(id(fault))
        self._poisoned |= fault.poisons
        _break(fault, self._events)


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
    if effect.startswith("grandchild"):
        _leave_grandchild()
    if effect in ("exit", "grandchild-exit"):
        os._exit(3)
    if effect == "ignore-term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while effect in ("signal", "hang", "ignore-term"):
        time.sleep(1)
    while effect == "busy":
        # Inside C and without giving the interpreter away, as in a driver that spins.
        pow(3, 1 << 100_000, (1 << 100_000) - 1)


def _allocate() -> None:
    """Allocate until there is no memory left for this process; the limit keeps the machine safe."""
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
    """A process that outlives this one and holds its pipes open."""
    if os.fork() == 0:
        while True:
            signal.pause()
