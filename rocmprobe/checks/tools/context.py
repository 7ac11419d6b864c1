"""Argument and result of a check's function."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Optional, Protocol

from rocmprobe.checks.tools.compiler import Compiler
from rocmprobe.checks.tools.computation import seed_of
from rocmprobe.checks.tools.failures import DeviceFailure, NotApplicable
from rocmprobe.model.problems import Problem


@dataclass
class Meter:
    """Peak of tensor memory in bytes, minus the memory that was in use when the measurement began."""

    peak_bytes: int = 0


class TestedLibrary(Protocol):
    """Interface of the vendor library and its device, as far as checks need it."""

    @property
    def name(self) -> str:
        """ "onednn", "cudnn" or "miopen"."""

    @property
    def device_type(self) -> str:
        """torch's device type: "cpu" or "cuda"."""

    @property
    def rounds_parts(self) -> bool:
        """True if kernels can round partial sums to half precision, as PyTorch's own kernels do."""

    def synchronize(self, device: str) -> None:
        """Wait until all queued work on ``device`` is done. Raise its errors."""

    def meter(self, device: str) -> AbstractContextManager[Meter]:
        """Return a context manager that yields a Meter. After the block, the Meter has the block's peak
        memory use."""

    def fillable_bytes(self, device: str, wanted: int) -> int:
        """Return how many bytes a test may allocate without harm to other users of the memory.

        On a CPU, return at most ``wanted`` bytes, because it would take too long to fill more.
        """

    def memory_limit(self, device: str, above: int) -> Callable[[], AbstractContextManager[None]]:
        """Return a function that creates a context with a memory limit.

        Inside of the context, an allocation fails if the process would then have more than ``above`` bytes in
        addition to its memory when ``memory_limit`` was called.
        """


@dataclass
class CheckResult:
    """Result of a check.

    ``message`` explains any state except "pass". ``solver``, ``algorithm`` and ``workspace_bytes`` are set if
    the library's functions return them. Otherwise the controller takes them from the library's log, if
    possible.
    """

    state: str = "pass"
    message: str = ""
    cause: Optional[str] = None
    timings: dict[str, float] = field(default_factory=dict)
    numerics: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    evidence: list[str] = field(default_factory=list)
    solver: Optional[str] = None
    algorithm: Optional[str] = None
    workspace_bytes: Optional[int] = None


def deciles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """Return the 10th and the 90th percentile of at least two times, as entries of ``timings``."""
    low, *_, high = statistics.quantiles(seconds, n=10, method="inclusive")
    return {f"{name}_p10": low, f"{name}_p90": high}


@dataclass(frozen=True)
class Soak:
    """Parameters of the check soak. The check lasts ``seconds``, measured with ``clock``.

    ``report`` sends progress to the controller, and returns False if the check must end.
    """

    seconds: float = 60.0
    clock: Callable[[], float] = time.monotonic
    report: Callable[[Mapping[str, Any]], bool] = lambda progress: True


@dataclass
class CheckContext:
    """Argument of a check's function: the case, and functions and objects that the check needs in this
    process.

    ``device`` is torch's name of the device. ``apply_setting`` creates a context in which the setting applies
    (its environment variables are already set). ``report_phase`` tells the controller which time limit
    applies from now on. ``send_preliminary`` sends a preliminary result to the controller, which uses this
    result if the process dies in the phase ``yardstick``. ``seconds`` is the time for a throughput
    measurement. ``sweep_bytes`` is how much memory a memory sweep may fill on a CPU.

    ``exact`` is True if results for integer operands must equal the reference. ``bypass`` is True if the
    setting installs the bypass. ``naive`` is True if naive im2col is also timed. ``batch`` is the batch size
    for timing networks. The controller reads clocks and temperatures of the device before and after a
    ``measured`` block.
    """

    dtype: Any
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
    sweep_bytes: int = 64 << 20
    batch: Optional[int] = None
    operator: Optional[str] = None
    compiler: Compiler = field(default_factory=Compiler)
    clock: Callable[[], float] = time.perf_counter
    send_preliminary: Callable[[CheckResult], None] = lambda answer: None
    measured: Callable[[], AbstractContextManager[None]] = nullcontext
    soak: Soak = field(default_factory=Soak)

    @property
    def the_problem(self) -> Problem:
        assert self.problem is not None, "this check needs a problem"
        return self.problem

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).rpartition(".")[2]

    def seed(self) -> int:
        """Return the seed of this case's inputs, which is the same in every process and run."""
        return seed_of(self.problem.text if self.problem else self.dtype_name)

    @contextmanager
    def under_setting(self) -> Iterator[None]:
        """Apply the setting inside of a ``with`` block, and wait for the device at the end of the block.

        Turn exceptions into DeviceFailure. If PyTorch lacks a kernel on a CPU, raise NotApplicable instead.
        """
        try:
            with self.apply_setting():
                yield
                self.backend.synchronize(self.device)
        except NotApplicable:
            raise
        except Exception as error:
            if "not implemented for" in str(error) and self.backend.device_type == "cpu":
                raise NotApplicable(f"this torch has no such kernel on a CPU: {error}") from error
            raise DeviceFailure from error

    def placed(self, move: Callable[[], Any]) -> Any:
        """Return the result of ``move``, which moves tensors to the device.

        The first use of a device starts its runtime, so the time limit of a first call applies. Raise
        DeviceFailure if ``move`` fails.
        """
        self.report_phase("first-call")
        with self.under_setting():
            result = move()
        self.report_phase("prepare")
        return result

    def first_call(self, call: Callable[[], Any]) -> tuple[Any, float]:
        """Run ``call`` for the first time, and return (result, seconds). This run may search for kernels and
        compile them."""
        self.report_phase("first-call")
        started = self.clock()
        with self.under_setting():
            result = call()
        seconds = self.clock() - started
        self.report_phase("steady")
        return result, seconds

    def steady_call(self, call: Callable[[], Any]) -> tuple[Any, float]:
        """Run ``call`` once more, and return (result, seconds)."""
        self.report_phase("steady")
        started = self.clock()
        with self.under_setting():
            result = call()
        return result, self.clock() - started
