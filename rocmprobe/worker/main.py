"""Main loop of a child process.

The child reads a ``Spec`` and then cases, as JSON lines, until the pipe closes. Events are JSON lines on a
separate pipe, because ROCm libraries print to stdout and stderr.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Optional, Protocol

from rocmprobe.checks import CHECKS, DIRECT
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.model.results import Setting
from rocmprobe.model.results_file import from_json
from rocmprobe.simulate.injector import Injector

#: Texts in error messages after which the device context may be unusable. The process then runs no further
#: case.
POISONED = ("HIP error", "CUDA error", "hipError", "cudaError", "device-side assert")

Emit = Callable[[dict[str, Any]], None]
#: Maximum number of attempts per case in this process. A failure is retried if the process survives.
ATTEMPTS = 3


@dataclass(frozen=True)
class Spec:
    """The first message to a child.

    - ``seconds``: duration of one measurement
    - ``simulated``: a ``SimulatedMachine`` as JSON
    - ``first``: case for which the child is started
    - ``threads``: number of CPU threads for kernels, or 0 for torch's default
    - ``soak``: duration of the check soak in seconds
    """

    device: str
    backend: str
    setting: Setting
    seconds: float
    simulated: Optional[dict[str, Any]] = None
    environ: dict[str, str] = field(default_factory=dict)
    first: Optional[Case] = None
    threads: int = 0
    soak: float = 60.0

    def injector(self, events: int) -> Injector:
        """Return the hooks of the simulated machine, or hooks that do nothing."""
        if self.simulated is None:
            return Injector()
        # A worker on a real device need not import the simulation.
        from rocmprobe.simulate.gpu import SimulatedCpu, SimulatedGpu
        from rocmprobe.simulate.machines import SimulatedMachine

        machine: SimulatedMachine = from_json(SimulatedMachine, self.simulated)
        if self.setting.device:
            return SimulatedCpu(machine)
        return SimulatedGpu(machine, self.setting.name, self.device, events)


class Driver(Protocol):
    """Interface of a driver, which calls the libraries. Methods do not raise exceptions."""

    def library_version(self) -> Optional[str]:
        """Return the version of the vendor library, or None if it is unknown."""

    def attempt(self, case: Case) -> CheckResult:
        """Run a case once."""

    def device_answers(self) -> bool:
        """Return True if the device still computes correctly after a failure."""


def answer(driver: Driver, case: Case) -> dict[str, Any]:
    """Run a case with retries, and return the event with all attempts."""
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
    """Import torch without its warning about NumPy."""
    if "torch" in sys.modules:
        return
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    # Exclude torch from garbage collection, which would find nothing to free. Collection would take a tenth
    # of the import's time, and as much time at the end of the process. In a forked child, collection would
    # also copy the memory that is shared with the server.
    gc.disable()
    try:
        importlib.import_module("torch")
    finally:
        gc.freeze()
        gc.enable()


def serve(commands: int, events: int) -> None:
    """Read cases from the descriptor ``commands`` until it closes, and write events to ``events``."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    out = os.fdopen(events, "w", encoding="utf-8")

    def emit(event: dict[str, Any]) -> None:
        # Begin a new line, because a library may have written half a line to this descriptor.
        out.write("\n" + json.dumps(event) + "\n")
        out.flush()

    lines = os.fdopen(commands, encoding="utf-8")
    spec: Spec = from_json(Spec, json.loads(lines.readline()))
    os.environ.clear()
    os.environ.update(spec.environ)
    injector = spec.injector(events)
    try:
        injector.enter("import", spec.first)
        driver = _driver(spec, emit, injector)
    except Exception as error:
        emit({"event": "unusable", "message": f"import torch: {type(error).__name__}: {error}"})
        return

    def mapped() -> dict[str, list[str]]:
        return injector.mapped() if spec.backend == "miopen" else {}

    emit({"event": "ready", "library": driver.library_version(), "mapped": mapped()})
    case: Optional[Case] = None
    for line in iter(lines.readline, ""):
        case = from_json(Case, json.loads(line))
        outcome = answer(driver, case)
        sys.stdout.flush()
        sys.stderr.flush()
        emit({**outcome, "mapped": mapped()})
    emit({"event": "bye"})
    injector.enter("teardown", case)


def _driver(spec: Spec, emit: Emit, injector: Injector) -> Driver:
    if spec.first and spec.first.check in DIRECT:
        from rocmprobe.worker.direct_driver import DirectDriver

        return DirectDriver(spec, emit)
    import_torch()
    from rocmprobe.worker.torch_driver import TorchDriver

    return TorchDriver(spec, emit, injector, lambda: _measured(emit))


@contextmanager
def _measured(emit: Emit) -> Iterator[None]:
    emit({"event": "measuring"})
    try:
        yield
    finally:
        emit({"event": "measured"})
