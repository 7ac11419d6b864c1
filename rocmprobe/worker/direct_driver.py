"""The driver of the checks that run without torch."""

from __future__ import annotations

import traceback
from typing import Optional

from rocmprobe.backends.direct.checks import DirectCalls
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.worker.main import Emit
from rocmprobe.worker.messages import Phase, Spec


class DirectDriver:
    """A driver that calls HIP, rocBLAS and MIOpen through ctypes."""

    def __init__(self, spec: Spec, emit: Emit) -> None:
        device = int(spec.device.partition(":")[2] or 0)
        self._calls = DirectCalls(device, lambda phase: emit(Phase(phase)))

    def library_version(self) -> Optional[str]:
        # The version needs a call, which can crash.
        return None

    def attempt(self, case: Case) -> CheckResult:
        try:
            return self._calls.run(case)
        except Exception:
            lines = traceback.format_exc().splitlines()
            return CheckResult("probe-error", lines[-1], evidence=lines[-12:])

    def device_answers(self) -> bool:
        try:
            return self._calls.device_answers()
        except Exception:
            return False
