"""The driver torch: PyTorch calls the vendor library."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial
from typing import Optional

from rocmprobe.backends import BACKENDS, Backend
from rocmprobe.knowledge.settings import Versions
from rocmprobe.model.cases import Case
from rocmprobe.model.problems import parse_problem
from rocmprobe.worker.context import CheckContext, CheckResult, DeviceFailure, NotApplicable, out_of_memory
from rocmprobe.worker.protocol import POISONED, Emit, Spec
from rocmprobe.worker.simulation.process_faults import ProcessFaults


class TorchDriver:
    """Answers cases under one setting."""

    def __init__(
        self,
        spec: Spec,
        emit: Emit,
        breaking: Optional[ProcessFaults] = None,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        import torch

        if spec.threads:
            torch.set_num_threads(spec.threads)
        self.spec = spec
        self.emit = emit
        self.alone = alone
        self.device = spec.setting.device or spec.device
        self.backend: Backend = BACKENDS["onednn" if self.device == "cpu" else spec.backend]
        self.below: Callable[[], AbstractContextManager[None]] = nullcontext
        self.breaking = breaking
        if spec.simulated and breaking:
            from rocmprobe.worker.simulation.machine import SimulatedMiopen, faults

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

    def context(self, case: Case) -> CheckContext:
        import torch

        from rocmprobe.worker.setting import holding

        setting = self.spec.setting
        return CheckContext(
            dtype=getattr(torch, case.dtype),
            device=self.device,
            backend=self.backend,
            problem=parse_problem(case.problem) if case.problem else None,
            direction=case.direction,
            under=holding(setting, self.backend, self.below, self.versions()),
            report_phase=partial(self._report_phase, case),
            settle=lambda answer: self.emit({"event": "settled", "answer": asdict(answer)}),
            seconds=self.spec.seconds,
            exact=setting.bypass or not setting.vendor_library or self.backend.demands_exactness(),
            bypass=setting.bypass,
            # Once for each problem: beside the bypass, which uses the same GEMM and is its only rival.
            naive=setting.bypass and setting.vendor_library,
            sweep_bytes=int(self.spec.sweep_mb * (1 << 20)),
            batch=self.spec.batch,
            alone=self.alone,
        )

    def _report_phase(self, case: Case, phase: str) -> None:
        self.emit({"event": "phase", "phase": phase})
        if self.breaking and phase == "yardstick":
            self.breaking.enter(phase, case)
        elif self.breaking:
            self.breaking.phase = phase

    def device_answers(self) -> bool:
        """Whether a small exact sum still comes out right."""
        import torch

        try:
            if self.breaking:
                self.breaking.refuse_if_poisoned()
            return float(torch.ones(4, device=self.device).add_(1).sum()) == 8.0
        except Exception:
            return False

    def attempt(self, case: Case) -> CheckResult:
        from rocmprobe.worker.checks import CHECK_FUNCTIONS

        try:
            if self.breaking:
                self.breaking.enter("prepare", case)
            return CHECK_FUNCTIONS[case.check](self.context(case))
        except NotApplicable as reason:
            return CheckResult("n/a", str(reason))
        except DeviceFailure as failure:
            return _error(failure.__cause__ or failure)
        except Exception:
            lines = traceback.format_exc().splitlines()
            return CheckResult("probe-error", lines[-1], evidence=lines[-12:])


def _error(error: BaseException) -> CheckResult:
    """An exception of the device or its libraries as an answer, with a cause that the text decides."""
    text = f"{type(error).__name__}: {error}" if not isinstance(error, DeviceFailure) else str(error)
    lines = text.splitlines()
    cause = "exception"
    if "miopenStatus" in text:
        cause = "miopen-status"
    elif out_of_memory(error):
        cause = "out-of-memory"
    elif any(mark in text for mark in POISONED):
        cause = "device-error"
    frames = [line for frame in traceback.format_tb(error.__traceback__)[-3:] for line in frame.splitlines()]
    return CheckResult("error", lines[0], cause, evidence=lines[1:6] + frames)
