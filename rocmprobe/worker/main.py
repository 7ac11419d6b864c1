"""The loop inside a child: one command line in, phases and one answer out, until the pipe closes.

The first line is the ``Spec``; each further line is a case. Events are JSON lines on a pipe of their
own, since ROCm libraries print on stdout and stderr from C++.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from rocmprobe.backends import BACKENDS, Backend
from rocmprobe.cases import Case
from rocmprobe.machines import SimulatedMachine
from rocmprobe.model import Setting, from_json
from rocmprobe.problems import parse_problem
from rocmprobe.settings import Versions
from rocmprobe.worker.ask import Answer, Ask, DeviceFailure, NotApplicable
from rocmprobe.worker.breaking import Breaking

#: A failure that Python survives is tried again in place, twice.
ATTEMPTS = 3
#: After one of these the device context may be poisoned: the process answers nothing further.
_POISONED = ("HIP error", "CUDA error", "hipError", "cudaError", "device-side assert")
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Spec:
    """What a child is told first: device, backend, setting, environment and seconds per measurement.

    ``first`` is the case that it is started for; only a simulated machine asks, which may break at once.
    """

    device: str
    backend: str
    setting: Setting
    seconds: float
    simulated: Optional[SimulatedMachine] = None
    environ: dict[str, str] = field(default_factory=dict)
    first: Optional[Case] = None

    def breaking(self, events: int) -> Optional[Breaking]:
        """What is to break in this process; the CPU of its own setting never does."""
        if self.simulated is None or self.setting.device:
            return None
        return Breaking(self.simulated, self.setting.name, events)


class Worker:
    """Answers cases under one setting."""

    def __init__(
        self, spec: Spec, emit: Callable[[dict[str, Any]], None], breaking: Optional[Breaking] = None
    ) -> None:
        self.spec = spec
        self.emit = emit
        self.device = spec.setting.device or spec.device
        self.backend: Backend = BACKENDS["onednn" if self.device == "cpu" else spec.backend]
        self.below: Callable[[], AbstractContextManager[None]] = nullcontext
        self.breaking = breaking
        if spec.simulated and breaking:
            from rocmprobe.worker.simulated import SimulatedMiopen, faults

            self.backend, self.device = SimulatedMiopen(spec.simulated), "cpu"
            self.below = faults(spec.simulated, spec.setting.name, breaking, spec.device)

    def library_version(self) -> Optional[str]:
        """What torch says of the vendor library; asking a broken one may raise anything."""
        try:
            return self.backend.library_version()
        except Exception:
            return None

    def versions(self) -> Versions:
        """What a setting meets here; on a simulated machine, the versions that it has."""
        import torch

        library = self.library_version()
        if self.spec.simulated is None:
            return Versions(self.backend.library, library, str(torch.__version__), torch.version.hip)
        machine = self.spec.simulated.machine
        names = ("torch.hip", "hip.version", "rocm.version")
        rocm = next((machine.value(name) for name in names if machine.value(name)), None)
        return Versions(self.backend.library, library, machine.value("torch.version"), rocm)

    def ask(self, case: Case) -> Ask:
        import torch

        from rocmprobe.worker.setting import holding

        setting = self.spec.setting
        return Ask(
            dtype=getattr(torch, case.dtype),
            device=self.device,
            backend=self.backend,
            problem=parse_problem(case.problem) if case.problem else None,
            direction=case.direction,
            under=holding(setting, self.backend, self.below, self.versions()),
            report_phase=self._report_phase,
            seconds=self.spec.seconds,
            exact=setting.bypass or not setting.vendor_library or self.backend.demands_exactness(),
            bypass=setting.bypass,
        )

    def _report_phase(self, phase: str) -> None:
        if self.breaking:
            self.breaking.phase = phase
        self.emit({"event": "phase", "phase": phase})

    def answer(self, case: Case) -> dict[str, Any]:
        """The case's answer, with every attempt; a failure is tried again, unless it poisons."""
        attempts: list[Answer] = []
        poisoned = False
        while len(attempts) < ATTEMPTS and not poisoned:
            started = time.perf_counter()
            attempts.append(self._attempt(case))
            attempts[-1].timings["seconds"] = time.perf_counter() - started
            if attempts[-1].state not in ("wrong", "error"):
                break
            poisoned = any(mark in attempts[-1].message for mark in _POISONED) or not self._device_answers()
        return {
            "event": "answer",
            "attempts": [asdict(attempt) for attempt in attempts],
            "poisoned": poisoned,
        }

    def _device_answers(self) -> bool:
        """Whether a small exact sum still comes out right: a library may report a status of its own and
        leave the device context unusable behind it."""
        import torch

        try:
            if self.breaking:
                self.breaking.refuse_if_poisoned()
            return float(torch.ones(4, device=self.device).add_(1).sum()) == 8.0
        except Exception:
            return False

    def _attempt(self, case: Case) -> Answer:
        from rocmprobe.worker.checks import ANSWERED_BY

        try:
            if self.breaking:
                self.breaking.enter("prepare", case)
            return ANSWERED_BY[case.check](self.ask(case))
        except NotApplicable as reason:
            return Answer("n/a", str(reason))
        except DeviceFailure as failure:
            return _error(failure.__cause__ or failure)
        except Exception:
            lines = traceback.format_exc().splitlines()
            return Answer("probe-error", lines[-1], evidence=lines[-12:])


def _error(error: BaseException) -> Answer:
    """An exception of the device or its libraries as an answer, with a cause that the text decides."""
    text = f"{type(error).__name__}: {error}" if not isinstance(error, DeviceFailure) else str(error)
    lines = text.splitlines()
    cause = "exception"
    if "miopenStatus" in text:
        cause = "miopen-status"
    elif "out of memory" in text or isinstance(error, MemoryError):
        cause = "out-of-memory"
    elif any(mark in text for mark in _POISONED):
        cause = "device-error"
    frames = [line for frame in traceback.format_tb(error.__traceback__)[-3:] for line in frame.splitlines()]
    return Answer("error", lines[0], cause, evidence=lines[1:6] + frames)


def die_with_parent(parent: Optional[int] = None) -> None:
    """Have the kernel kill this process when its parent thread ends; end it if ``parent`` is gone already."""
    parent = parent or os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def import_torch() -> None:
    """Import torch. That it finds no NumPy is nothing to a worker, which never uses it."""
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    importlib.import_module("torch")


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
    breaking = spec.breaking(events)
    try:
        if breaking:
            breaking.enter("import", spec.first)
        import_torch()
    except Exception as error:
        emit({"event": "unusable", "message": f"import torch: {type(error).__name__}: {error}"})
        return
    worker = Worker(spec, emit, breaking)
    emit({"event": "ready", "library": worker.library_version()})
    case: Optional[Case] = None
    for line in lines:
        case = from_json(Case, json.loads(line))
        answer = worker.answer(case)
        sys.stdout.flush()
        sys.stderr.flush()
        emit(answer)
    emit({"event": "bye"})
    if breaking:
        breaking.enter("teardown", case)
