"""Checks that run without torch.

Run these checks in a separate process, because a check can crash. The caller decides which checks to skip
after a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Optional

from rocmprobe.backends.capi import reference
from rocmprobe.backends.capi.batch_norm import EPSILON, batch_norm
from rocmprobe.backends.capi.convolution import Convolution, Found, convolution
from rocmprobe.backends.capi.libraries import Place
from rocmprobe.backends.capi.miopen import MiopenLibrary
from rocmprobe.backends.capi.operator_checks import OPERATOR_CHECKS, Part
from rocmprobe.backends.capi.rocblas import Rocblas
from rocmprobe.backends.capi.tensor_operations import StrayWrites
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.kernels.exact import encode
from rocmprobe.knowledge import miopen_log
from rocmprobe.model.numerics import SUMS, TRANSFORMS, exact_fill, judge_float, miopen_rule
from rocmprobe.model.problems import Problem
from rocmprobe.runtimes.calls import CallFailed, LoadFailed, NotAvailable, Observer, load
from rocmprobe.runtimes.hip import Hip

INTERFACES = ("find", "immediate", "find-2.0")
#: Number of products that the plain-Python reference can compute in a few seconds.
MOST_PRODUCTS = 100_000_000
_COPY_BYTES = 1 << 16
_GEMM_SIZES = (17, 33, 65)
#: Shape of the input, the same as in the check through PyTorch.
_BATCH_NORM_SHAPE = (4, 16, 14, 14)


#: (function that returns results by name, expected results by name), keyed by the name of the computation.
_Parts = Mapping[str, tuple[Callable[[], Mapping[str, Sequence[float]]], Mapping[str, Sequence[float]]]]


class _NothingFound(Exception):
    """MIOpen reported success, but returned no algorithm or solution."""


def _nothing(phase: str) -> None:
    pass


class CapiChecks:
    """Checks that run on HIP's ``device`` with the libraries of ``place``.

    ``interface`` is MIOpen's interface for convolutions, one of INTERFACES. ``report_phase`` receives the
    phase of a check, "first-call" or "steady".
    """

    def __init__(
        self,
        place: Place,
        device: int,
        interface: str = "find",
        observe: Optional[Observer] = None,
        report_phase: Callable[[str], None] = _nothing,
    ) -> None:
        self._place = place
        self._device = device
        self._found = {"find": _by_find, "immediate": _by_immediate, "find-2.0": _by_find2}[interface]
        self._observe = observe
        self._report_phase = report_phase
        self._hip: Optional[Hip] = None
        self._rocblas: Optional[Rocblas] = None
        self._miopen: Optional[MiopenLibrary] = None

    def answer(
        self,
        check: str,
        dtype: str = "float32",
        problem: Optional[Problem] = None,
        direction: Optional[str] = None,
    ) -> CheckResult:
        """Run one check.

        The state is "n/a" if a library, symbol or device is missing, and "error" if a call fails.
        """
        ask: Callable[[], CheckResult]
        if check == "convolution":
            assert problem is not None, "this check needs a problem"
            ask = partial(self._convolve, problem, direction or "fwd")
        elif check == "gemm":
            ask = partial(self._multiply, dtype)
        elif check in OPERATOR_CHECKS:
            ask = partial(self._check_operator, check, dtype)
        else:
            ask = {"copy": self._copy, "elementwise": self._fill, "batch-norm": self._check_batch_norm}[check]
        try:
            return ask()
        except (NotAvailable, NotApplicable) as error:
            return CheckResult("n/a", str(error))
        except (CallFailed, LoadFailed, _NothingFound) as error:
            return CheckResult("error", str(error), _cause(error))

    def device_answers(self) -> bool:
        """Return True if a copy to the device and back still works after a failure."""
        return self._copy_small().state == "pass"

    def miopen_version(self) -> Optional[str]:
        """Return MIOpen's version, or None if it is unknown. The call needs no GPU."""
        with suppress(CallFailed, LoadFailed, NotAvailable, NotApplicable):
            return self._loaded_miopen().version()
        return None

    def _copy_small(self) -> CheckResult:
        try:
            with self._opened_hip().upload(b"rocmprobe") as buffer:
                return CheckResult() if buffer.read() == b"rocmprobe" else CheckResult("wrong")
        except (CallFailed, LoadFailed, NotAvailable, NotApplicable) as error:
            return CheckResult("error", str(error))

    def _copy(self) -> CheckResult:
        content = bytes(range(256)) * (_COPY_BYTES // 256)
        self._report_phase("first-call")
        started = time.perf_counter()
        with self._opened_hip().upload(content) as buffer:
            back = buffer.read()
        return _exactly(_unequal(back, content), "bytes came back changed", time.perf_counter() - started)

    def _fill(self) -> CheckResult:
        """Test that HIP fills memory and copies within the device."""
        content = bytes(range(251)) * (_COPY_BYTES // 256)
        self._report_phase("first-call")
        started = time.perf_counter()
        hip = self._opened_hip()
        with hip.upload(content) as source, hip.allocate(len(content)) as target:
            target.fill(0xA5)
            hip.synchronize()
            wrong = _unequal(target.read(), b"\xa5" * len(content))
            target.copy_from(source)
            hip.synchronize()
            wrong += _unequal(target.read(), content)
        return _exactly(wrong, "bytes differ", time.perf_counter() - started)

    def _multiply(self, dtype: str) -> CheckResult:
        m, n, k = _GEMM_SIZES
        fill = exact_fill(dtype, k)
        a = reference.integers(m * k, fill.largest, fill.density, seed=1)
        b = reference.integers(k * n, fill.largest, seed=2)
        empty = b"\xff" * len(encode([0] * (m * n), dtype))
        self._report_phase("first-call")
        started = time.perf_counter()
        hip, rocblas = self._opened_hip(), self._opened_rocblas()
        with ExitStack() as stack:
            factors = [stack.enter_context(hip.upload(encode(each, dtype))) for each in (a, b)]
            c = stack.enter_context(hip.upload(empty))
            rocblas.gemm(dtype, m, n, k, factors[0], factors[1], c)
            hip.synchronize()
            seconds = time.perf_counter() - started
            result = reference.decode(c.read(), dtype)
        self._report_phase("steady")
        expected = reference.matrix_product(m, n, k, a, b)
        step = CheckResult(timings={"first_call": seconds})
        # The operands are integers, so the result must be exact in any order of summation.
        return _compare(step, {"product": (result, expected)}, dtype, k, exact=True)

    def _convolve(self, asked: Problem, direction: str) -> CheckResult:
        problem, direction = reference.plain(asked, direction)
        if problem.dtype == "float64":
            raise NotApplicable("MIOpen has no convolution in float64")
        if problem.noncontiguous:
            raise NotApplicable(
                "PyTorch makes operands contiguous before it calls MIOpen, so this needs no test"
            )
        if problem.flops > 2 * MOST_PRODUCTS:
            products = problem.flops // 2
            raise NotApplicable(
                f"{products:.2g} multiplications are too many for the reference in plain Python"
            )
        fill = exact_fill(problem.dtype, problem.terms(direction), TRANSFORMS)
        inputs = reference.operands(problem, direction, fill)
        lying = {"x": problem.input_shape, "w": problem.weight_shape, "y": problem.output_shape}
        contents = {
            name: encode(
                reference.channels_last(values, lying[name]) if problem.channels_last else values,
                problem.dtype,
            )
            for name, values in inputs.items()
        }
        self._report_phase("first-call")
        started = time.perf_counter()
        hip, miopen = self._opened_hip(), self._opened_miopen()
        with convolution(hip, miopen, problem, direction, contents) as made, self._found(hip, made) as found:
            chosen, solver, run = found
            searched = made.result.stray_writes()
            run()
            hip.synchronize()
            first_seconds = time.perf_counter() - started
            content = made.result.read()
            self._report_phase("steady")
            made.result.fill(0xFF)
            started = time.perf_counter()
            run()
            hip.synchronize()
            steady_seconds = time.perf_counter() - started
            again, stray = made.result.read(), made.result.stray_writes()
        result: Sequence[float] = reference.decode(content, problem.dtype)
        if problem.channels_last:
            shape = {"fwd": lying["y"], "bwd-data": lying["x"]}.get(direction, lying["w"])
            result = reference.channels_first(result, shape)
        step = CheckResult(
            timings={"first_call": first_seconds, "steady": steady_seconds},
            solver=None if solver is None else miopen_log.solver_name(solver),
            algorithm=chosen.algorithm,
            workspace_bytes=chosen.workspace,
        )
        expected = reference.convolve(problem, direction, inputs)
        compared = {"result": (result, expected)}
        judged = _compare(step, compared, problem.dtype, problem.terms(direction), exact=False)
        rule = miopen_rule(reference.errors(result, expected), problem.dtype, direction, asked.transposed)
        extra = {"repeatable": content == again, "miopen_rule": rule}
        judged = replace(judged, numerics={**judged.numerics, **extra})
        if stray and judged.state == "pass":
            when = "while MIOpen searched" if searched == stray else "when it was run"
            return replace(
                judged, state="wrong", message=f"{stray} bytes outside the result were written {when}"
            )
        return judged

    def _check_batch_norm(self) -> CheckResult:
        """Test training, backward and inference of batch norm."""
        shape, channels = _BATCH_NORM_SHAPE, _BATCH_NORM_SHAPE[1]
        terms = prod(shape) // channels
        x = reference.integers(prod(shape), 4, seed=3)
        dy = reference.integers(prod(shape), 4, seed=4)
        scale = [float(value) for value in reference.integers(channels, 2, seed=5)]
        bias = [float(value) for value in reference.integers(channels, 4, seed=6)]
        mean, variance = reference.moments(shape, x)
        normed = {"output": reference.batch_norm(shape, x, scale, bias, mean, variance, EPSILON)}
        gradients = reference.batch_norm_backward(shape, x, dy, scale, mean, variance, EPSILON)
        self._report_phase("first-call")
        started = time.perf_counter()
        hip, miopen = self._opened_hip(), self._opened_miopen()
        with batch_norm(hip, miopen, shape, x) as made:
            parts: _Parts = {
                # No computation uses the results of another, so a failure affects only one of them.
                "training": (partial(made.training, scale, bias), normed),
                "backward": (partial(made.backward, dy, scale, mean, variance), gradients),
                "inference": (partial(made.inference, scale, bias, mean, variance), normed),
            }
            return self._by_parts(started, parts, "float32", terms, exact=False)

    def _check_operator(self, name: str, dtype: str) -> CheckResult:
        """Run every part of the operator check ``name``."""
        check = OPERATOR_CHECKS[name](dtype)
        self._report_phase("first-call")
        started = time.perf_counter()
        hip, miopen = self._opened_hip(), self._opened_miopen()
        parts: _Parts = {
            each: (partial(_one_result, part, hip, miopen), {"result": part.expected})
            for each, part in check.parts.items()
        }
        return self._by_parts(started, parts, dtype, check.terms, check.exact)

    def _by_parts(self, started: float, parts: _Parts, dtype: str, terms: int, exact: bool) -> CheckResult:
        results: dict[str, Mapping[str, Sequence[float]]] = {}
        failures: dict[str, Exception] = {}
        for name, (compute, _) in parts.items():
            try:
                results[name] = compute()
            except (CallFailed, NotAvailable) as error:
                failures[name] = error
                if isinstance(error, CallFailed) and error.call.function.startswith("hip"):
                    break
            except StrayWrites as error:
                return CheckResult("wrong", f"{name}: {error}")
        step = CheckResult(timings={"first_call": time.perf_counter() - started})
        if not failures:
            self._report_phase("steady")
        compared = {
            name: {f"{name}: {what}": (values, parts[name][1][what]) for what, values in named.items()}
            for name, named in results.items()
        }
        if not failures:
            together = {what: pair for each in compared.values() for what, pair in each.items()}
            return _compare(step, together, dtype, terms, exact)
        alike: dict[str, list[str]] = {}
        for name, failure in failures.items():
            alike.setdefault(str(failure), []).append(name)
        message = "; ".join(f"{', '.join(names)}: {text}" for text, names in alike.items())
        right = [
            name
            for name, each in compared.items()
            if _compare(step, each, dtype, terms, exact).state == "pass"
        ]
        if right:
            message += f"; {' and '.join(right)} correct"
        failed = [error for error in failures.values() if isinstance(error, CallFailed)]
        if not failed:
            return replace(step, state="n/a", message=message)
        return replace(step, state="error", message=message, cause=_cause(failed[0]))

    def _path(self, library: str) -> str:
        if library not in self._place.files:
            raise NotApplicable(f"{self._place.folder} has no {library}")
        return self._place.files[library]

    def _opened_hip(self) -> Hip:
        if self._hip is None:
            hip = Hip(self._path("libamdhip64"), self._observe)
            count = hip.device_count()
            if self._device >= count:
                raise NotApplicable(f"HIP sees {count} device(s), there is no device {self._device}")
            hip.set_device(self._device)
            self._hip = hip
        return self._hip

    def _opened_rocblas(self) -> Rocblas:
        if self._rocblas is None:
            rocblas = Rocblas(self._path("librocblas"), self._observe)
            rocblas.create()
            self._rocblas = rocblas
        return self._rocblas

    def _loaded_miopen(self) -> MiopenLibrary:
        # MIOpen loads HIP and rocBLAS by SONAME, so it uses the copies that are already loaded.
        for library in ("libamdhip64", "librocblas"):
            if library in self._place.files:
                with suppress(LoadFailed):
                    load(self._place.files[library])
        return MiopenLibrary(self._path("libMIOpen"), self._observe)

    def _opened_miopen(self) -> MiopenLibrary:
        if self._miopen is None:
            miopen = self._loaded_miopen()
            miopen.create()
            self._miopen = miopen
        return self._miopen


def _cause(error: Exception) -> str:
    if not isinstance(error, CallFailed):
        return "exception"
    if error.call.name == "hipErrorOutOfMemory":
        return "out-of-memory"
    if error.call.function.startswith("miopen"):
        return "miopen-status"
    return "device-error" if error.call.function.startswith("hip") else "exception"


def _one_result(part: Part, hip: Hip, miopen: MiopenLibrary) -> dict[str, list[float]]:
    return {"result": part.compute(hip, miopen)}


def _unequal(found: Sequence[int], expected: Sequence[int]) -> int:
    return sum(value != right for value, right in zip(found, expected))


def _exactly(wrong: int, what: str, seconds: float) -> CheckResult:
    timings = {"first_call": seconds}
    return CheckResult("wrong", f"{wrong} {what}", timings=timings) if wrong else CheckResult(timings=timings)


def _compare(
    step: CheckResult,
    compared: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    dtype: str,
    terms: int,
    exact: bool,
) -> CheckResult:
    """Compare results to expected values, and return ``step`` with errors and state.

    Each element of a result is a sum of ``terms`` products. If all expected values are integers, results must
    equal them. If ``exact`` is False, results are rounded to integers before this comparison.
    """
    numerics: dict[str, Any] = {}
    unequal = off = 0
    for name, (result, expected) in compared.items():
        measured = reference.errors(result, expected)
        right, numbers, why = judge_float(measured, dtype, terms, SUMS if exact else TRANSFORMS)
        if not right:
            return replace(step, state="wrong", message=f"{name}: {why}", numerics={"of": name, **numbers})
        unequal += sum(value != wanted for value, wanted in zip(result, expected))
        off += sum((value if exact else round(value)) != wanted for value, wanted in zip(result, expected))
        numerics = numerics or {"of": name, **numbers}
    if all(float(value).is_integer() for _, expected in compared.values() for value in expected):
        numerics.update(exact=unequal == 0, exact_demanded=exact)
        if off:
            message = f"exact tier: {off} elements differ"
            return replace(step, state="wrong", message=message, numerics=numerics)
    return replace(step, numerics=numerics)


#: (solution, number of its solver in MIOpen or None if unknown, function that runs the solution).
_Run = Iterator[tuple[Found, Optional[int], Callable[[], None]]]


@contextmanager
def _by_find(hip: Hip, made: Convolution) -> _Run:
    with hip.allocate(made.workspace_size()) as workspace:
        found = made.find(workspace)
        if not found:
            raise _NothingFound("Find offers no algorithm")
        best = found[0]
        yield best, None, lambda: made.run(best, workspace)


@contextmanager
def _by_immediate(hip: Hip, made: Convolution) -> _Run:
    solutions = made.solutions()
    if not solutions:
        raise _NothingFound("immediate mode offers no solution")
    best = solutions[0]
    made.compile(best)
    with hip.allocate(best.workspace) as workspace:
        yield best, best.number, lambda: made.run_immediate(best, workspace)


@contextmanager
def _by_find2(hip: Hip, made: Convolution) -> _Run:
    with made.found_solutions() as solutions:
        if not solutions:
            raise _NothingFound("Find 2.0 offers no solution")
        found, solution = solutions[0]
        with hip.allocate(found.workspace) as workspace:
            yield found, found.number, lambda: made.run_found(solution, workspace)
