"""The first message to a child, and the answers of each driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional, Protocol

from rocmprobe.backends.capi import Place
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.model.results import Setting, from_json
from rocmprobe.simulate.injector import Injector

#: After one of these the device context may be poisoned: the process answers nothing further.
POISONED = ("HIP error", "CUDA error", "hipError", "cudaError", "device-side assert")

Emit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Spec:
    """The first message to a child: device, backend, setting, environment, seconds per measurement,
    and MiB that a memory sweep may fill.

    ``simulated`` is a ``SimulatedMachine`` as JSON, so that a worker on a real device does not import the
    simulation. ``first`` is the case that the child is started for, which a fault at its start is about.
    ``place`` is where the libraries are that the driver ``capi`` calls; without one the driver is ``torch``.
    ``batch`` is the one that networks are timed with, None for their own.
    ``threads`` is how many the kernels of the CPU get, 0 for as many as torch takes.
    """

    device: str
    backend: str
    setting: Setting
    seconds: float
    sweep_mb: float = 64
    simulated: Optional[dict[str, Any]] = None
    environ: dict[str, str] = field(default_factory=dict)
    first: Optional[Case] = None
    place: Optional[Place] = None
    batch: Optional[int] = None
    threads: int = 0

    def injector(self, events: int) -> Injector:
        """Return the simulated machine of this process, or the injector that changes nothing."""
        if self.simulated is None:
            return Injector()
        from rocmprobe.simulate.gpu import SimulatedCpu, SimulatedGpu
        from rocmprobe.simulate.machines import SimulatedMachine

        machine: SimulatedMachine = from_json(SimulatedMachine, self.simulated)
        if self.setting.device:
            return SimulatedCpu(machine)
        return SimulatedGpu(machine, self.setting.name, self.device, events)


class Driver(Protocol):
    """Who calls the libraries in this process."""

    def library_version(self) -> Optional[str]:
        """What is said of the vendor library's version; None where nothing is. Never raises."""

    def attempt(self, case: Case) -> CheckResult:
        """One try of a case. Never raises."""

    def device_answers(self) -> bool:
        """Whether something small still comes out right: a library may report a status of its own and
        leave the device context unusable behind it."""
