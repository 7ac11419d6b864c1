"""The checks ``rocblas-direct`` and ``miopen-direct``, which run without torch.

The operands are small integers, and the expected results come from plain Python.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Optional

from rocmprobe.backends.direct import reference
from rocmprobe.backends.direct.libraries import find_libraries
from rocmprobe.backends.direct.miopen import Miopen, convolution
from rocmprobe.backends.direct.rocblas import Rocblas
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.kernels.exact import encode
from rocmprobe.model.numerics import SUMS, TRANSFORMS, exact_fill, judge_float
from rocmprobe.model.problems import parse_problem
from rocmprobe.runtimes.calls import Call, CallFailed, LoadFailed, NotAvailable, load
from rocmprobe.runtimes.hip import Hip

#: Number of products that the plain-Python reference can compute in a few seconds.
MOST_PRODUCTS = 100_000_000
#: Start of the lines in the log that name the calls.
CALL_PREFIX = "[rocmprobe] "
_GEMM_SIZES = (17, 33, 65)


class DirectCalls:
    """HIP, rocBLAS and MIOpen, loaded when a check first needs them.

    ``device`` is HIP's number of the device. ``report_phase`` receives the phase of a check, "first-call" or
    "steady".
    """

    def __init__(self, device: int, report_phase: Callable[[str], None]) -> None:
        self._device = device
        self._report_phase = report_phase
        self._files = find_libraries(os.environ)
        self._hip: Optional[Hip] = None
        self._rocblas: Optional[Rocblas] = None
        self._miopen: Optional[Miopen] = None

    def run(self, case: Case) -> CheckResult:
        """Run a check. The state is "n/a" if a library, function or device is missing, and "error" if a call
        fails."""
        check = {"rocblas-direct": self._multiply, "miopen-direct": self._convolve}[case.check]
        try:
            return check(case)
        except (NotAvailable, NotApplicable) as error:
            return CheckResult("n/a", str(error))
        except (CallFailed, LoadFailed) as error:
            return CheckResult("error", str(error), _cause(error))

    def device_answers(self) -> bool:
        """Return True if a copy to the device and back still works after a failure."""
        content = b"rocmprobe"
        try:
            with self._opened_hip().upload(content) as buffer:
                return buffer.read() == content
        except (CallFailed, LoadFailed, NotAvailable, NotApplicable):
            return False

    def _multiply(self, case: Case) -> CheckResult:
        m, n, k = _GEMM_SIZES
        fill = exact_fill(case.dtype, k)
        a = reference.integers(m * k, fill.largest, fill.density, seed=1)
        b = reference.integers(k * n, fill.largest, seed=2)
        # 0xFF bytes are NaN in every dtype, so elements that a kernel does not write are visible.
        empty = b"\xff" * len(encode([0] * (m * n), case.dtype))
        self._report_phase("first-call")
        started = time.perf_counter()
        hip, rocblas = self._opened_hip(), self._opened_rocblas()
        with ExitStack() as stack:
            factors = [stack.enter_context(hip.upload(encode(matrix, case.dtype))) for matrix in (a, b)]
            c = stack.enter_context(hip.upload(empty))
            rocblas.gemm(case.dtype, m, n, k, factors[0], factors[1], c)
            hip.synchronize()
            seconds = time.perf_counter() - started
            result = reference.decode(c.read(), case.dtype)
        self._report_phase("steady")
        answer = CheckResult(timings={"first_call": seconds})
        # The operands are integers, so the result must be exact in any order of summation.
        return _compare(answer, result, reference.matrix_product(m, n, k, a, b), case.dtype, k, SUMS)

    def _convolve(self, case: Case) -> CheckResult:
        # Operands are contiguous, because PyTorch makes them contiguous before it calls MIOpen.
        asked = replace(parse_problem(case.problem or ""), channels_last=False, noncontiguous=False)
        problem, direction = reference.plain(asked, case.direction or "fwd")
        if problem.dtype == "float64":
            raise NotApplicable("MIOpen has no convolution in float64")
        if problem.flops > 2 * MOST_PRODUCTS:
            products = problem.flops // 2
            raise NotApplicable(
                f"{products:.2g} multiplications are too many for the reference in plain Python"
            )
        terms = problem.terms(direction)
        inputs = reference.operands(problem, direction, exact_fill(problem.dtype, terms, TRANSFORMS))
        contents = {name: encode(values, problem.dtype) for name, values in inputs.items()}
        self._report_phase("first-call")
        started = time.perf_counter()
        hip, miopen = self._opened_hip(), self._opened_miopen()
        with ExitStack() as stack:
            made = stack.enter_context(convolution(hip, miopen, problem, direction, contents))
            workspace = stack.enter_context(hip.allocate(made.workspace_size()))
            algorithms = made.find(workspace)
            if not algorithms:
                return CheckResult("error", "MIOpen's Find offers no algorithm", "exception")
            made.run(algorithms[0], workspace)
            hip.synchronize()
            seconds = time.perf_counter() - started
            content, stray = made.result.read(), made.result.stray_writes()
        self._report_phase("steady")
        answer = CheckResult(
            timings={"first_call": seconds},
            algorithm=algorithms[0].algorithm,
            workspace_bytes=algorithms[0].workspace,
        )
        result = reference.decode(content, problem.dtype)
        expected = reference.convolve(problem, direction, inputs)
        judged = _compare(answer, result, expected, problem.dtype, terms, TRANSFORMS)
        if stray and judged.state == "pass":
            return replace(
                judged, state="wrong", message=f"{stray} bytes outside the result were overwritten"
            )
        return judged

    def _path(self, library: str) -> str:
        if library not in self._files:
            raise NotApplicable(
                f"found no {library} next to torch, in LD_LIBRARY_PATH, ROCM_PATH, /opt/rocm* and the "
                "distribution's folders"
            )
        return self._files[library]

    def _opened_hip(self) -> Hip:
        if self._hip is None:
            hip = Hip(self._path("libamdhip64"), _observe)
            count = hip.device_count()
            if self._device >= count:
                raise NotApplicable(f"HIP sees {count} device(s), there is no device {self._device}")
            hip.set_device(self._device)
            self._hip = hip
        return self._hip

    def _opened_rocblas(self) -> Rocblas:
        if self._rocblas is None:
            self._rocblas = Rocblas(self._path("librocblas"), _observe)
        return self._rocblas

    def _opened_miopen(self) -> Miopen:
        if self._miopen is None:
            path = self._path("libMIOpen")
            # MIOpen loads rocBLAS by its SONAME, so MIOpen uses the copy that is already loaded.
            with suppress(LoadFailed, NotApplicable):
                load(self._path("librocblas"))
            self._miopen = Miopen(path, _observe)
        return self._miopen


def _observe(call: Call) -> None:
    """Write a call to the log, so that the log shows which call crashed, hung or printed a message."""
    if call.number is None:
        os.write(2, f"{CALL_PREFIX}{call.function}\n".encode())
    elif call.number:
        os.write(2, f"{CALL_PREFIX}{call.function}: {call.name} ({call.number})\n".encode())


def _cause(error: Exception) -> str:
    if not isinstance(error, CallFailed):
        return "exception"
    if error.call.name == "hipErrorOutOfMemory":
        return "out-of-memory"
    if error.call.function.startswith("miopen"):
        return "miopen-status"
    return "device-error" if error.call.function.startswith("hip") else "exception"


def _compare(
    answer: CheckResult,
    result: Sequence[float],
    expected: Sequence[float],
    dtype: str,
    terms: int,
    guarantee: str,
) -> CheckResult:
    """Compare ``result`` to integers, and return ``answer`` with errors and state.

    Each element is a sum of ``terms`` products. If ``guarantee`` is TRANSFORMS, the result is rounded to
    integers before the comparison.
    """
    right, numbers, why = judge_float(reference.errors(result, expected), dtype, terms, guarantee)
    if not right:
        return replace(answer, state="wrong", message=why, numerics=numbers)
    unequal = sum(value != wanted for value, wanted in zip(result, expected))
    off = sum(round(value) != wanted for value, wanted in zip(result, expected))
    wrong = unequal if guarantee == SUMS else off
    numbers.update(exact=unequal == 0, exact_demanded=guarantee == SUMS)
    if wrong:
        message = f"exact tier: {wrong} elements differ"
        return replace(answer, state="wrong", message=message, numerics=numbers)
    return replace(answer, numerics=numbers)
