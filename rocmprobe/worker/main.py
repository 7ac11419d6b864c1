"""Main loop of a child process.

The child reads a ``Spec`` and then cases until the pipe closes. Events go through a separate pipe, because
ROCm libraries print to stdout and stderr.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Optional, Protocol

import msgspec

from rocmprobe.checks import CHECKS, DIRECT
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.simulate.injector import Injector
from rocmprobe.worker.messages import Answer, Event, Measuring, Ready, Repetition, Spec, Unusable, encode

#: Texts in error messages after which the device context may be unusable. The process then runs no further
#: case.
POISONED = ("HIP error", "CUDA error", "hipError", "cudaError", "device-side assert")

Emit = Callable[[Event], None]
#: Maximum number of attempts per case in this process. A failure is retried if the process survives.
ATTEMPTS = 3
#: No further repetition begins after so many seconds times the number of repetitions, counted from the end of
#: the first one, which can compile kernels. A GPU needs milliseconds, an emulated GPU several seconds.
SECONDS_PER_REPETITION = 1.0


def injector_of(spec: Spec, events: int) -> Injector:
    """Return the hooks of the simulated machine, or hooks that do nothing."""
    if spec.simulated is None:
        return Injector()
    # A worker on a real device does not import the simulation.
    from rocmprobe.simulate.gpu import SimulatedCpu, SimulatedGpu
    from rocmprobe.simulate.machines import SimulatedMachine

    machine = msgspec.convert(spec.simulated, SimulatedMachine)
    if spec.setting.device:
        return SimulatedCpu(machine)
    return SimulatedGpu(machine, spec.setting.name, spec.device, events)


class Driver(Protocol):
    """Interface of a driver, which calls the libraries. Methods do not raise exceptions."""

    def library_version(self) -> Optional[str]:
        """Return the version of the vendor library, or None if it is unknown."""

    def attempt(self, case: Case) -> CheckResult:
        """Run a case once."""

    def device_answers(self) -> bool:
        """Return True if the device still computes correctly after a failure."""


def answer(driver: Driver, case: Case, emit: Emit) -> tuple[list[CheckResult], bool]:
    """Run a case with retries. Return all attempts, and True if this process cannot run another case.

    If the case is repeated, return the attempts of the first repetition that fails, or of the last one. Stop
    early if the repetitions take too long, and say so.
    """
    ends = math.inf
    for repetition in range(1, case.repeats + 1):
        if case.repeats > 1:
            emit(Repetition(repetition))
        attempts, poisoned = _attempts(driver, case)
        if attempts[0].state != "pass":
            if case.repeats > 1:
                attempts[0].message = f"repetition {repetition} of {case.repeats}: {attempts[0].message}"
            break
        if repetition == 1:
            ends = time.monotonic() + SECONDS_PER_REPETITION * case.repeats
        elif time.monotonic() > ends:
            break
    if case.repeats > 1:
        attempts[-1].numerics["repetitions"] = repetition
        if attempts[0].state == "pass" and repetition < case.repeats:
            short = f"only {repetition} of {case.repeats} repetitions, because each is slow"
            attempts[0].message = "; ".join(filter(None, (attempts[0].message, short)))
    return attempts, poisoned


def _attempts(driver: Driver, case: Case) -> tuple[list[CheckResult], bool]:
    attempts: list[CheckResult] = []
    poisoned = False
    while not poisoned:
        started = time.perf_counter()
        attempts.append(driver.attempt(case))
        attempts[-1].timings["seconds"] = time.perf_counter() - started
        if attempts[-1].state not in ("wrong", "error"):
            break
        poisoned = any(mark in attempts[-1].message for mark in POISONED) or not driver.device_answers()
        if len(attempts) == ATTEMPTS or CHECKS[case.check].once:
            break
    return attempts, poisoned


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
    out = os.fdopen(events, "wb")

    def emit(event: Event) -> None:
        # Begin a new line, because a library may have written half a line to this descriptor.
        out.write(b"\n" + encode(event))
        out.flush()

    lines = os.fdopen(commands, encoding="utf-8")
    spec = msgspec.convert(json.loads(lines.readline()), Spec)
    os.environ.clear()
    os.environ.update(spec.environ)
    injector = injector_of(spec, events)
    try:
        injector.enter("import", spec.first)
        driver = _driver(spec, emit, injector)
    except Exception as error:
        emit(Unusable(f"import torch: {type(error).__name__}: {error}"))
        return

    def mapped() -> dict[str, list[str]]:
        return injector.mapped() if spec.backend == "miopen" else {}

    emit(Ready(driver.library_version(), mapped()))
    case: Optional[Case] = None
    for line in iter(lines.readline, ""):
        case = msgspec.convert(json.loads(line), Case)
        attempts, poisoned = answer(driver, case, emit)
        sys.stdout.flush()
        sys.stderr.flush()
        emit(Answer(attempts, poisoned, mapped()))
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
    emit(Measuring("before"))
    try:
        yield
    finally:
        emit(Measuring("after"))
