"""The driver ``capi``, which calls HIP, rocBLAS and MIOpen without torch."""

from __future__ import annotations

import os
import traceback
from typing import Optional

from rocmprobe.backends.capi import Call, Place
from rocmprobe.backends.capi.ladder import CapiChecks
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.knowledge.settings import Versions, reason_without_effect
from rocmprobe.model.problems import parse_problem
from rocmprobe.worker.main import Emit, Spec


class CapiDriver:
    """A driver that calls the GPU libraries, and emits an event before and after each call."""

    def __init__(self, spec: Spec, place: Place, emit: Emit) -> None:
        self._emit = emit
        self._setting = spec.setting
        self._version: Optional[str] = None
        device = int(spec.device.partition(":")[2] or 0)
        interface = spec.setting.search or "find"
        self._ladder = CapiChecks(place, device, interface, self._observe, self._report_phase)

    def library_version(self) -> Optional[str]:
        # Load the library only for a case, because loading it can crash the process.
        return None

    def attempt(self, case: Case) -> CheckResult:
        self._emit({"event": "attempt"})
        try:
            return self._answer(case)
        finally:
            self._emit({"event": "attempted"})

    def _answer(self, case: Case) -> CheckResult:
        try:
            if case.rung in ("conv", "batch-norm", "primitives"):
                self._refuse_meaningless()
            problem = parse_problem(case.problem) if case.problem else None
            check = "convolution" if case.check == "solver" else case.check
            return self._ladder.answer(check, case.dtype, problem, case.direction)
        except NotApplicable as reason:
            return CheckResult("n/a", str(reason))
        except Exception:
            lines = traceback.format_exc().splitlines()
            return CheckResult("probe-error", lines[-1], evidence=lines[-12:])

    def device_answers(self) -> bool:
        try:
            return self._ladder.device_answers()
        except Exception:
            return False

    def _refuse_meaningless(self) -> None:
        if self._version is None:
            self._report_phase("first-call")
            self._version = self._ladder.miopen_version() or ""
            self._emit({"event": "library", "library": self._version or None})
        reason = reason_without_effect(self._setting, Versions("MIOpen", self._version or None))
        if reason:
            raise NotApplicable(reason)

    def _report_phase(self, phase: str) -> None:
        self._emit({"event": "phase", "phase": phase})

    def _observe(self, call: Call) -> None:
        self._emit({"event": "call", "function": call.function, "number": call.number, "name": call.name})
        # Write the calls to the log, so that the log shows which call printed the library's lines.
        if call.number is None:
            os.write(2, f"[rocmprobe] {call.function}\n".encode())
        elif call.number:
            os.write(2, f"[rocmprobe] {call.function}: {call.name} ({call.number})\n".encode())
