"""Check that a training step, repeated for minutes under load, always gives the same result."""

from __future__ import annotations

from dataclasses import asdict
from math import log2
from typing import TYPE_CHECKING, Any, Optional

from rocmprobe.checks.check import Check, Requires
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import DeviceFailure, NotApplicable, out_of_memory

if TYPE_CHECKING:
    from torch import Tensor

    from rocmprobe.checks.networks.repeated import Comparison, RepeatedStep

NAME = "soak"
#: Number of results to compare first, and how many must be equal so that the setting counts as deterministic.
#: Not all must be equal, because a single different result can be a fault of the device.
_FIRST, _ALIKE = 10, 8
#: A step keeps the device busy if it takes at least this many seconds. Launches and comparisons take only
#: milliseconds.
_LOADED = 0.05
#: Number of copies of the images at the start, keyed by device type, and maximum number of copies. With the
#: maximum, a step needs about 1 GiB.
_COPIES = {"cpu": 1, "cuda": 64}
_MOST_COPIES = 256
#: Seconds between two progress reports.
_EVERY = 1.0
#: Maximum number of mismatches that are described in the report. All mismatches are counted.
_DESCRIBED = 10


def soak(context: CheckContext) -> CheckResult:
    """Repeat a training step, and compare the results bit for bit.

    If more than two of the first ten results differ, compare results to fp64 with a tolerance instead.
    """
    from rocmprobe.checks.networks.repeated import Comparison

    comparison = Comparison()
    step, copies = _find_loading_step(context)
    run = _Soak(context, step, comparison, comparison.limit(copies))
    run.compare_first([_once(context, step) for _ in range(_FIRST)])
    while not run.over:
        run.compare(_once(context, step))
    return run.result()


def _once(context: CheckContext, step: RepeatedStep) -> Tensor:
    result: Tensor = context.steady_call(step.run)[0]
    return result


def _find_loading_step(context: CheckContext) -> tuple[RepeatedStep, int]:
    """Return a step that is large enough to load the device, and the number of copies of each image."""
    copies = _COPIES[context.backend.device_type]
    step = _try_step(context, copies)
    while step is None and copies > 1:
        copies //= 2
        step = _try_step(context, copies)
    if step is None:
        raise NotApplicable("not even one copy of the images fits into memory")
    _once(context, step)
    # Try few batch sizes, because the library can compile new kernels for each size.
    faster = _LOADED / max(context.steady_call(step.run)[1], 1e-6)
    more = min(copies << max(0, int(log2(faster))), _MOST_COPIES)
    larger = _try_step(context, more) if more > copies else None
    return (larger, more) if larger else (step, copies)


def _try_step(context: CheckContext, copies: int) -> Optional[RepeatedStep]:
    from rocmprobe.checks.networks.repeated import RepeatedStep

    try:
        step: RepeatedStep = context.placed(lambda: RepeatedStep(context.device, context.dtype, copies))
        context.first_call(step.run)
    except DeviceFailure as failure:
        if not out_of_memory(failure.__cause__):
            raise
        return None
    return step


class _Soak:
    def __init__(
        self, context: CheckContext, step: RepeatedStep, comparison: Comparison, limit: float
    ) -> None:
        self._soak = context.soak
        self._comparison, self._limit = comparison, limit
        self._began = self._reported = self._soak.clock()
        self._goes_on = True
        self._first: Any = None
        self._outside = 0
        self._wrong_from_start = False
        self._progress: dict[str, Any] = {
            "steps": 0, "seconds": 0.0, "mismatches": 0, "mismatch": [], "batch": step.batch,
            "limit": float(f"{limit:.3g}"), "wanted_seconds": self._soak.seconds,
        }  # fmt: skip

    @property
    def over(self) -> bool:
        return not self._goes_on or self._progress["seconds"] >= self._soak.seconds

    def compare_first(self, results: list[Tensor]) -> None:
        from rocmprobe.checks.networks.repeated import most_frequent

        self._first, alike = most_frequent(results)
        self._progress["bit_for_bit"] = alike >= _ALIKE
        error = self._comparison.error(self._first)
        if error > self._limit:
            self._wrong_from_start = True
            self._goes_on = False
            self._progress["first_error"] = _finite(error)
            return
        for result in results:
            self.compare(result)

    def compare(self, result: Tensor) -> None:
        """Count a step, compare its result, and report progress."""
        from rocmprobe.checks.networks.repeated import same_bits

        progress, now = self._progress, self._soak.clock()
        progress["steps"] += 1
        progress["seconds"] = round(now - self._began, 3)
        same = same_bits(result, self._first)
        error = 0.0 if same else self._comparison.error(result)
        right = error <= self._limit
        mismatch = not right or (progress["bit_for_bit"] and not same)
        described = mismatch and progress["mismatches"] < _DESCRIBED
        progress["mismatches"] += mismatch
        self._outside += not right
        if described:
            difference = self._comparison.difference(result, self._first)
            progress["mismatch"].append(
                {"step": progress["steps"], "seconds": progress["seconds"], "error": _finite(error),
                 "within_rounding": right, **asdict(difference)}
            )  # fmt: skip
        if described or progress["steps"] == 1 or now - self._reported >= _EVERY:
            self._report(now)

    def _report(self, now: float) -> None:
        self._reported = now
        self._goes_on = self._soak.report(self._progress) and self._goes_on

    def result(self) -> CheckResult:
        """Return the result of the check.

        The state is "wrong" if an error exceeds the limit, or "flaky" if only smaller differences were found.
        """
        self._report(self._reported)
        progress = self._progress
        answer = CheckResult(numerics=dict(progress))
        if self._wrong_from_start:
            answer.state = "wrong"
            answer.message = f"every step differs from fp64 by {_words(progress['first_error'], self._limit)}"
        elif progress["mismatches"]:
            answer.state = "wrong" if self._outside else "flaky"
            first = progress["mismatch"][0]
            answer.message = (
                f"{progress['mismatches']} of {progress['steps']} steps gave another result; in step "
                f"{first['step']} {_count(first['elements'], 'value')} of {first['of']} differ by "
                f"{_count(first['bits'], 'bit')}, in {_count(first['tensors'], 'tensor')}; the error is "
                f"{_words(first['error'], self._limit)}"
            )
        return answer


def _finite(error: float) -> Optional[float]:
    return float(f"{error:.3g}") if error < float("inf") else None


def _count(amount: int, noun: str) -> str:
    return f"{amount} {noun if amount == 1 else f'{noun}s'}"


def _words(error: Optional[float], limit: float) -> str:
    return f"{'infinite' if error is None else f'{error:.2g}'}, the limit is {limit:.2g}"


CHECKS = (
    Check(
        NAME, "train", "Does a training step give the same result again and again, under load?", soak,
        Requires(float32=("training-step",)), exclusive=True, own_process=True, last=True, once=True,
        verified=False, seconds=120.0,
    ),
)  # fmt: skip
