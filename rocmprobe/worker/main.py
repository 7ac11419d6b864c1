"""The loop inside a child: one command line in, phases and one answer out, until the pipe closes.

The first line is the ``Spec``; each further line is a case. Events are JSON lines on a pipe of their
own, since ROCm libraries print on stdout and stderr from C++.
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Optional

from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.model.results import from_json
from rocmprobe.simulate.injector import Injector
from rocmprobe.worker.protocol import POISONED, Driver, Emit, Spec

#: A failure that Python survives is tried again in place, twice.
ATTEMPTS = 3


def answer(driver: Driver, case: Case) -> dict[str, Any]:
    """The case's answer, with every attempt; a failure is tried again, unless it poisons."""
    attempts: list[CheckResult] = []
    poisoned = False
    while len(attempts) < ATTEMPTS and not poisoned:
        started = time.perf_counter()
        attempts.append(driver.attempt(case))
        attempts[-1].timings["seconds"] = time.perf_counter() - started
        if attempts[-1].state not in ("wrong", "error"):
            break
        poisoned = any(mark in attempts[-1].message for mark in POISONED) or not driver.device_answers()
    return {"event": "answer", "attempts": [asdict(attempt) for attempt in attempts], "poisoned": poisoned}


def import_torch() -> None:
    """Import torch, where it is not there yet. That it finds no NumPy is nothing to a worker."""
    if "torch" in sys.modules:
        return
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    # All of it stays. To look for garbage in it takes a tenth of the import's time, again at the end of the
    # process, and in a fork copies the memory that it would share with the server.
    gc.disable()
    try:
        importlib.import_module("torch")
    finally:
        gc.freeze()
        gc.enable()


def serve(commands: int, events: int) -> None:
    """Answer cases from the file descriptor ``commands`` on ``events`` until it is closed."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    out = os.fdopen(events, "w", encoding="utf-8")

    def emit(event: dict[str, Any]) -> None:
        # A library that wrote half a line on a descriptor not its own must not cost this event.
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
    if spec.place is not None:
        from rocmprobe.worker.capi_driver import CapiDriver

        return CapiDriver(spec, spec.place, emit)
    import_torch()
    from rocmprobe.worker.torch_driver import TorchDriver

    return TorchDriver(spec, emit, injector, lambda: _measured(emit))


@contextmanager
def _measured(emit: Emit) -> Iterator[None]:
    """Have the controller read clocks and temperatures before and after the block."""
    emit({"event": "measuring"})
    try:
        yield
    finally:
        emit({"event": "measured"})
