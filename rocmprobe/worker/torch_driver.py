"""The driver of the checks that run in PyTorch.

Call ``main.import_torch`` before you import this module.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Optional

import torch

from rocmprobe import bypass
from rocmprobe.backends import BACKENDS, Backend
from rocmprobe.backends.base import Switch, switched
from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import DeviceFailure, NotApplicable, out_of_memory
from rocmprobe.knowledge.settings import Versions, reason_without_effect
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import Setting
from rocmprobe.simulate.injector import Injector
from rocmprobe.torch_flags import MissingFlag, set_flag
from rocmprobe.worker.main import POISONED, Emit
from rocmprobe.worker.messages import Phase, Preliminary, Spec


class TorchDriver:
    """A driver that runs cases in PyTorch under one setting."""

    def __init__(
        self,
        spec: Spec,
        emit: Emit,
        injector: Injector,
        measured: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        if spec.threads:
            torch.set_num_threads(spec.threads)
        self.spec = spec
        self.emit = emit
        self.measured = measured
        device = spec.setting.device or spec.device
        backend = BACKENDS["onednn" if device == "cpu" else spec.backend]
        self.device, self.backend = injector.device(device, backend)
        self.compiler = injector.compiler()
        self.faults = injector.faults()
        self.injector = injector

    def library_version(self) -> Optional[str]:
        try:
            return self.backend.library_version()
        except Exception:
            # A broken library can raise any exception.
            return None

    def versions(self) -> Versions:
        """Return the versions of torch, ROCm and the vendor library."""
        library = self.library_version()
        return self.injector.versions(
            Versions(self.backend.library, library, str(torch.__version__), torch.version.hip)
        )

    def context(self, case: Case) -> CheckContext:
        setting = self.spec.setting
        return CheckContext(
            dtype=getattr(torch, case.dtype),
            device=self.device,
            backend=self.backend,
            problem=parse_problem(case.problem) if case.problem else None,
            direction=case.direction,
            apply_setting=holding(setting, self.backend, self.faults, self.versions()),
            report_phase=partial(self._report_phase, case),
            send_preliminary=lambda result: self.emit(Preliminary(result)),
            seconds=self.spec.seconds,
            exact=setting.bypass or not setting.vendor_library or self.backend.demands_exactness(),
            bypass=setting.bypass,
            compiler=self.compiler,
            clock=self.injector.clock,
            # Time naive im2col only under the bypass, because one time per problem is enough. The bypass uses
            # the same matrix products.
            naive=setting.bypass and setting.vendor_library,
            measured=self.measured,
            soak_seconds=self.spec.soak,
        )

    def _report_phase(self, case: Case, phase: str) -> None:
        self.emit(Phase(phase))
        self.injector.report(phase, case)

    def device_answers(self) -> bool:
        """Return True if a small exact sum is still correct."""
        try:
            self.injector.check_context()
            return float(torch.ones(4, device=self.device).add_(1).sum()) == 8.0
        except Exception:
            return False

    def attempt(self, case: Case) -> CheckResult:
        try:
            self.injector.enter("prepare", case)
            function = CHECKS[case.check].function
            assert function is not None, "a check without torch has its own driver"
            return function(self.context(case))
        except NotApplicable as reason:
            return CheckResult("n/a", str(reason))
        except DeviceFailure as failure:
            return _error(failure.__cause__ or failure)
        except Exception:
            lines = traceback.format_exc().splitlines()
            return CheckResult("probe-error", lines[-1], evidence=lines[-12:])


def _error(error: BaseException) -> CheckResult:
    text = f"{type(error).__name__}: {error}" if not isinstance(error, DeviceFailure) else str(error)
    lines = text.splitlines()
    failure = "exception"
    if "miopenStatus" in text:
        failure = "miopen-status"
    elif out_of_memory(error):
        failure = "out-of-memory"
    elif any(mark in text for mark in POISONED):
        failure = "device-error"
    frames = [line for frame in traceback.format_tb(error.__traceback__)[-3:] for line in frame.splitlines()]
    return CheckResult("error", lines[0], failure, evidence=lines[1:6] + frames)


@contextmanager
def _flags(flags: Mapping[str, object]) -> Iterator[None]:
    """Set flags of ``torch.backends`` in a ``with`` block.

    Raise NotApplicable if this torch does not have a flag.
    """
    with ExitStack() as stack:
        for name, value in flags.items():
            try:
                before = set_flag(torch, name, value)
            except MissingFlag as error:
                raise NotApplicable(str(error)) from error
            stack.callback(set_flag, torch, name, before)
        yield


def _full_precision() -> list[Switch]:
    """Return the flags that turn off TF32 and half precision sums."""
    # On recent NVIDIA GPUs, the errors of TF32 and half precision sums would exceed the checks' tolerances.
    switches: Sequence[tuple[object, str]] = (
        (torch.backends.cudnn, "allow_tf32"),
        (torch.backends.cuda.matmul, "allow_tf32"),
        (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
        (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    )
    return [(module, name, False) for module, name in switches if hasattr(module, name)]


def holding(
    setting: Setting,
    backend: Backend,
    below: Callable[[], AbstractContextManager[None]],
    versions: Versions,
) -> Callable[[], AbstractContextManager[None]]:
    """Return a function that creates a context in which ``setting`` is active.

    ``below`` creates a context that is entered before the bypass is enabled, e.g. to inject faults.
    Entering a context raises NotApplicable if ``setting`` has no effect with ``versions``.
    """

    @contextmanager
    def context() -> Iterator[None]:
        reason = reason_without_effect(setting, versions)
        if reason:
            raise NotApplicable(reason)
        with ExitStack() as stack:
            if backend.device_type == "cuda":
                stack.enter_context(switched(_full_precision()))
            stack.enter_context(_flags(setting.torch))
            stack.enter_context(below())
            if not setting.vendor_library:
                stack.enter_context(backend.vendor_library_off())
            if setting.bypass or setting.pytorch_layers:
                convolution = "bypass" if setting.bypass else "native"
                others: Any = dict.fromkeys(setting.pytorch_layers, "pytorch")
                stack.enter_context(bypass.enabled(backend.device_type, convolution=convolution, **others))
            yield

    return context
