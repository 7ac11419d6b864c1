"""Argument and result of a check's function."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional, Protocol, TypeVar, Union

from rocmprobe.checks.tools.compiler import Compiler
from rocmprobe.checks.tools.computation import seed_of
from rocmprobe.checks.tools.failures import DeviceFailure, NotApplicable
from rocmprobe.model.problems import Problem

if TYPE_CHECKING:
    import torch

_T = TypeVar("_T")


@dataclass
class Meter:
    """Peak memory of tensors in bytes, relative to the start of the measurement."""

    peak_bytes: int = 0


class TestedLibrary(Protocol):
    """Interface of a tested vendor library."""

    @property
    def name(self) -> str:
        """ "onednn", "cudnn" or "miopen"."""

    @property
    def device_type(self) -> str:
        """torch's device type: "cpu" or "cuda"."""

    @property
    def rounds_parts(self) -> bool:
        """True if kernels can round partial sums to half precision."""

    def synchronize(self, device: str) -> None:
        """Wait for the queued work on ``device``, and raise its errors."""

    def meter(self, device: str) -> AbstractContextManager[Meter]:
        """Return a context manager that measures the block's peak memory use."""


@dataclass
class CheckResult:
    """Result of a check.

    ``message`` explains the state. If ``solver``, ``algorithm`` or ``workspace_bytes`` is None, the
    controller searches the library's log.
    """

    state: str = "pass"
    message: str = ""
    failure: Optional[str] = None
    # Counts, such as repeats, stay integers on their way through JSON.
    timings: dict[str, Union[int, float]] = field(default_factory=dict)
    numerics: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    evidence: list[str] = field(default_factory=list)
    solver: Optional[str] = None
    algorithm: Optional[str] = None
    workspace_bytes: Optional[int] = None


def deciles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """Return the 10th and the 90th percentile of ``seconds``, as entries of ``CheckResult.timings``.

    ``seconds`` must have at least two items.
    """
    low, *_, high = statistics.quantiles(seconds, n=10, method="inclusive")
    return {f"{name}_p10": low, f"{name}_p90": high}


@dataclass
class CheckContext:
    """Argument of a check's function.

    - ``device``: torch's name of the device
    - ``apply_setting``: creates a context with the setting. Environment variables of the setting are already
      set.
    - ``report_phase``: tells the controller which time limit applies from now on
    - ``seconds``: time for a throughput measurement
    - ``soak_seconds``: time for the check ``soak``
    - ``exact``: True if results for integer operands must equal the reference
    - ``bypass``: True if the setting installs the bypass
    - ``naive``: True if naive im2col is also timed
    - ``send_preliminary``: sends a result that the controller uses if the process dies in the phase
      ``yardstick``
    - ``measured``: creates a context for measurements. The controller reads clocks and temperatures of the
      device before and after the block.
    """

    dtype: torch.dtype
    device: str
    backend: TestedLibrary
    problem: Optional[Problem]
    direction: Optional[str]
    apply_setting: Callable[[], AbstractContextManager[None]]
    report_phase: Callable[[str], None]
    seconds: float
    exact: bool
    bypass: bool
    naive: bool = False
    compiler: Compiler = field(default_factory=Compiler)
    clock: Callable[[], float] = time.perf_counter
    send_preliminary: Callable[[CheckResult], None] = lambda answer: None
    measured: Callable[[], AbstractContextManager[None]] = nullcontext
    soak_seconds: float = 60.0

    @property
    def the_problem(self) -> Problem:
        assert self.problem is not None, "this check needs a problem"
        return self.problem

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).rpartition(".")[2]

    def seed(self) -> int:
        """Return the seed of this case's inputs."""
        return seed_of(self.problem.text if self.problem else self.dtype_name)

    @contextmanager
    def under_setting(self) -> Iterator[None]:
        """Apply the setting in a ``with`` block, and wait for the device at the end.

        Raise DeviceFailure if the block fails, or NotApplicable if PyTorch lacks a kernel on a CPU.
        """
        try:
            with self.apply_setting():
                yield
                self.backend.synchronize(self.device)
        except NotApplicable:
            raise
        except Exception as error:
            lacking = isinstance(error, NotImplementedError) or "not implemented for" in str(error)
            if lacking and self.backend.device_type == "cpu":
                raise NotApplicable(f"this torch lacks this kernel on a CPU: {error}") from error
            raise DeviceFailure from error

    def placed(self, move: Callable[[], _T]) -> _T:
        """Call ``move``, which moves tensors to the device, and return the result.

        Raise DeviceFailure if ``move`` fails.
        """
        self.report_phase("first-call")
        with self.under_setting():
            result = move()
        self.report_phase("prepare")
        return result

    def first_call(self, call: Callable[[], _T]) -> tuple[_T, float]:
        """Run ``call`` for the first time, and return (result, seconds)."""
        self.report_phase("first-call")
        started = self.clock()
        with self.under_setting():
            result = call()
        seconds = self.clock() - started
        self.report_phase("steady")
        return result, seconds

    def steady_call(self, call: Callable[[], _T]) -> tuple[_T, float]:
        """Run ``call`` once more, and return (result, seconds)."""
        self.report_phase("steady")
        started = self.clock()
        with self.under_setting():
            result = call()
        return result, self.clock() - started
