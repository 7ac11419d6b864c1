"""Loop inside a child process. The loop reads one case per line and writes phases and a result for each case,
until the pipe closes.

The first line is the ``Spec``. Each further line is a case. Events are JSON lines on a separate pipe, because
ROCm libraries print on stdout and stderr from C++.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Optional, Protocol

from rocmprobe.backends.capi import Place
from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult, Soak
from rocmprobe.model.results import Setting
from rocmprobe.model.results_file import from_json
from rocmprobe.simulate.injector import Injector

#: After a message with one of these texts the device context may be unusable, so the process runs no further
#: case.
POISONED = ("HIP error", "CUDA error", "hipError", "cudaError", "device-side assert")

Emit = Callable[[dict[str, Any]], None]
#: Message with which the controller ends a soak early.
STOP: dict[str, Any] = {"stop": True}
#: Attempts per case. A failure that Python survives is retried in the same process.
ATTEMPTS = 3


@dataclass(frozen=True)
class Spec:
    """First message to a child.

    ``seconds`` is the time of one measurement. ``sweep_mb`` is the number of MiB that a memory sweep can
    fill. ``simulated`` is a ``SimulatedMachine`` as JSON, so that a worker on a real device does not import
    the simulation. ``first`` is the case for which the child is started, because a fault at the start can
    concern this case. If ``place`` is given, the driver is ``capi`` and loads the libraries from ``place``.
    Otherwise the driver is ``torch``. ``batch`` is the batch size of timed networks, or None for each
    network's default. ``threads`` is the number of CPU threads for kernels, or 0 for torch's default.
    ``soak`` is the duration of a soak in seconds.
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
    soak: float = 60.0

    def injector(self, events: int) -> Injector:
        """Return the simulated device if a machine is simulated, otherwise an injector that changes
        nothing."""
        if self.simulated is None:
            return Injector()
        from rocmprobe.simulate.gpu import SimulatedCpu, SimulatedGpu
        from rocmprobe.simulate.machines import SimulatedMachine

        machine: SimulatedMachine = from_json(SimulatedMachine, self.simulated)
        if self.setting.device:
            return SimulatedCpu(machine)
        return SimulatedGpu(machine, self.setting.name, self.device, events)


class Driver(Protocol):
    """Interface of the code that calls the libraries in this process. The methods do not raise."""

    def library_version(self) -> Optional[str]:
        """Return the version of the vendor library, or None if the version is unknown."""

    def attempt(self, case: Case) -> CheckResult:
        """Run a case once."""

    def device_answers(self) -> bool:
        """Return True if a small calculation is still correct.

        The check is needed after every failure. A library can leave the device context unusable and report a
        status of its own, which is not in ``POISONED``.
        """


def answer(driver: Driver, case: Case) -> dict[str, Any]:
    """Run a case and return its result with every attempt.

    Retry a failure unless the failure makes the device unusable.
    """
    attempts: list[CheckResult] = []
    poisoned = False
    most = 1 if CHECKS[case.check].once else ATTEMPTS
    while len(attempts) < most and not poisoned:
        started = time.perf_counter()
        attempts.append(driver.attempt(case))
        attempts[-1].timings["seconds"] = time.perf_counter() - started
        if attempts[-1].state not in ("wrong", "error"):
            break
        poisoned = any(mark in attempts[-1].message for mark in POISONED) or not driver.device_answers()
    return {"event": "answer", "attempts": [asdict(attempt) for attempt in attempts], "poisoned": poisoned}


def import_torch() -> None:
    """Import torch if needed. Silence its warning about NumPy, which a worker does not need."""
    if "torch" in sys.modules:
        return
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    # All of torch stays in memory. Garbage collection would take a tenth of the import's time, and again at
    # the end of the process. In a fork it would copy the memory that the child shares with the server.
    gc.disable()
    try:
        importlib.import_module("torch")
    finally:
        gc.freeze()
        gc.enable()


def serve(commands: int, events: int) -> None:
    """Run the cases from descriptor ``commands`` and write results to ``events`` until the pipe closes."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    out = os.fdopen(events, "w", encoding="utf-8")

    def emit(event: dict[str, Any]) -> None:
        # A library may have written half a line on this descriptor, which must not lose the event.
        out.write("\n" + json.dumps(event) + "\n")
        out.flush()

    lines = os.fdopen(commands, encoding="utf-8")
    spec: Spec = from_json(Spec, json.loads(lines.readline()))
    os.environ.clear()
    os.environ.update(spec.environ)
    injector = spec.injector(events)
    try:
        injector.enter("import", spec.first)
        driver = _driver(spec, commands, emit, injector)
    except Exception as error:
        emit({"event": "unusable", "message": f"import torch: {type(error).__name__}: {error}"})
        return

    def mapped() -> dict[str, list[str]]:
        return injector.mapped() if spec.backend == "miopen" else {}

    emit({"event": "ready", "library": driver.library_version(), "mapped": mapped()})
    case: Optional[Case] = None
    for line in iter(lines.readline, ""):
        message = json.loads(line)
        if message == STOP:
            # The soak that the message should stop has already ended.
            continue
        case = from_json(Case, message)
        outcome = answer(driver, case)
        sys.stdout.flush()
        sys.stderr.flush()
        emit({**outcome, "mapped": mapped()})
    emit({"event": "bye"})
    injector.enter("teardown", case)


def _driver(spec: Spec, commands: int, emit: Emit, injector: Injector) -> Driver:
    if spec.place is not None:
        from rocmprobe.worker.capi_driver import CapiDriver

        return CapiDriver(spec, spec.place, emit)
    import_torch()
    from rocmprobe.worker.torch_driver import TorchDriver

    def report(progress: Mapping[str, Any]) -> bool:
        emit({"event": "progress", "progress": progress})
        # Readable means that the controller sent STOP or is gone.
        return not select.select([commands], [], [], 0)[0]

    soak = Soak(spec.soak, injector.soak_clock, report)
    return TorchDriver(spec, emit, injector, lambda: _measured(emit), soak)


@contextmanager
def _measured(emit: Emit) -> Iterator[None]:
    """Let the controller read clocks and temperatures before and after the block."""
    emit({"event": "measuring"})
    try:
        yield
    finally:
        emit({"event": "measured"})
