"""What the function of a check is given, and what it returns."""

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
    """Bytes of tensor memory: the peak above what was live when metering began."""

    peak_bytes: int = 0


class TestedLibrary(Protocol):
    """What a check needs to know of the vendor library and its device."""

    @property
    def name(self) -> str:
        """ "onednn", "cudnn" or "miopen"."""

    @property
    def device_type(self) -> str:
        """torch's device type: "cpu" or "cuda"."""

    @property
    def rounds_parts(self) -> bool:
        """Whether sums in half precision may be rounded to it part by part, as PyTorch's own kernels do."""

    def synchronize(self, device: str) -> None:
        """Wait until everything queued on ``device`` is done; errors of queued work surface here."""

    def meter(self, device: str) -> AbstractContextManager[Meter]:
        """A context whose Meter holds the peak when it ends."""

    def fillable_bytes(self, device: str, wanted: int) -> int:
        """How much memory a test may fill without harm to whatever else uses it; ``wanted`` where time
        is what limits it."""

    def memory_limit(self, device: str, above: int) -> Callable[[], AbstractContextManager[None]]:
        """A context factory: inside, what goes ``above`` bytes over what this process holds now is
        refused, as where no memory is left. The limit is gone when the context ends, however it does."""


@dataclass
class CheckResult:
    """What a check found out. ``message`` explains any state but pass. ``solver`` and what follows are what
    the library's calls reported; its log may have more."""

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
    """Return the 10th and the 90th percentile of at least two times, as timings."""
    low, *_, high = statistics.quantiles(seconds, n=10, method="inclusive")
    return {f"{name}_p10": low, f"{name}_p90": high}


@dataclass(frozen=True)
class Soak:
    """The needs of a soak: its length in ``seconds`` by ``clock``, and the receiver of its progress.

    ``report`` sends progress to the controller. It returns False if the controller wants the soak to end.
    """

    seconds: float = 60.0
    clock: Callable[[], float] = time.monotonic
    report: Callable[[Mapping[str, Any]], bool] = lambda progress: True


@dataclass
class CheckContext:
    """A case, resolved for this process.

    ``device`` is torch's device string, ``under`` a context in which the setting holds (variables are
    set already), ``report_phase`` reports to the controller which budget runs, ``settle`` what it is to keep
    if this process ends in the phase ``yardstick``, ``seconds`` is how long a throughput measurement may
    take, ``sweep_bytes`` what a memory sweep may fill on a CPU. ``exact``:
    integer sums must come out equal; ``bypass``: the setting has it installed; ``naive``: naive im2col is
    timed beside the request; ``batch``: the one that networks are to be timed with; ``operator``: the name of
    the operator of a sweep; ``compiler`` makes
    kernels at run time; ``clock`` gives the seconds of first and steady calls. Before and after what is
    ``measured`` the controller reads clocks and temperatures. ``soak`` is for the check of that name alone.
    """

    dtype: Any
    device: str
    backend: TestedLibrary
    problem: Optional[Problem]
    direction: Optional[str]
    under: Callable[[], AbstractContextManager[None]]
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
    settle: Callable[[CheckResult], None] = lambda answer: None
    measured: Callable[[], AbstractContextManager[None]] = nullcontext
    soak: Soak = field(default_factory=Soak)

    @property
    def the_problem(self) -> Problem:
        assert self.problem is not None, "this check asks about a problem"
        return self.problem

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).rpartition(".")[2]

    def seed(self) -> int:
        """The same inputs in every process and every run."""
        return seed_of(self.problem.text if self.problem else self.dtype_name)

    @contextmanager
    def tested(self) -> Iterator[None]:
        """Marks what belongs to the device: under the setting, waited for, its exceptions kept apart."""
        try:
            with self.under():
                yield
                self.backend.synchronize(self.device)
        except NotApplicable:
            raise
        except Exception as error:
            if "not implemented for" in str(error) and self.backend.device_type == "cpu":
                raise NotApplicable(f"this torch has no such kernel on a CPU: {error}") from error
            raise DeviceFailure from error

    def placed(self, move: Callable[[], Any]) -> Any:
        """What ``move`` puts on the device. The first touch of a device starts its runtime, so this has
        the budget of a first call, and what goes wrong is the device's failure."""
        self.report_phase("first-call")
        with self.tested():
            result = move()
        self.report_phase("prepare")
        return result

    def first_call(self, call: Callable[[], Any]) -> tuple[Any, float]:
        """Result and seconds of ``call``'s first run, which may search and compile; then steady budget."""
        self.report_phase("first-call")
        started = self.clock()
        with self.tested():
            result = call()
        seconds = self.clock() - started
        self.report_phase("steady")
        return result, seconds

    def steady_call(self, call: Callable[[], Any]) -> tuple[Any, float]:
        """Result and seconds of one more run."""
        self.report_phase("steady")
        started = self.clock()
        with self.tested():
            result = call()
        return result, self.clock() - started
