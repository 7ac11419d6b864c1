"""The ladder without torch: copy, GEMM, convolution in each direction, batch norm.

For a process of its own: any step may end it. A step that stands on a failed one is blocked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from typing import Optional

from rocmprobe.backends.capi import reference
from rocmprobe.backends.capi.calls import CallFailed, LoadFailed, NotAvailable, Observer, released
from rocmprobe.backends.capi.convolution import Convolution, convolution
from rocmprobe.backends.capi.hip import Hip
from rocmprobe.backends.capi.libraries import Place
from rocmprobe.backends.capi.miopen import MiopenLibrary, Tensor
from rocmprobe.backends.capi.rocblas import Rocblas
from rocmprobe.model import DIRECTIONS
from rocmprobe.numerics import Errors, exact_fill, judge_float
from rocmprobe.problems import Problem

INTERFACES = ("find", "immediate", "find-2.0")
#: Products that the plain-Python reference does in some seconds.
_MOST_PRODUCTS = 5_000_000
_COPY_BYTES = 1 << 16
_GEMM_SIZES = (17, 33, 65)
_BATCH_NORM_SHAPE = (4, 3, 8, 8)


@dataclass(frozen=True)
class Step:
    """What one question gave: ``state`` is pass, wrong, error, n/a or blocked; ``message`` explains all but
    pass; ``seconds`` run until the numbers are on the host, with loading, search and compilation."""

    rung: str
    problem: str
    direction: Optional[str]
    state: str
    message: str
    seconds: float


@dataclass(frozen=True)
class _Question:
    """``compute`` gives the device's numbers, ``expect`` the reference's."""

    rung: str
    problem: str
    direction: Optional[str]
    dtype: str
    compute: Callable[[], Sequence[float]]
    expect: Callable[[], Sequence[float]]


class _NotApplicable(Exception):
    """The question has no meaning here; the message says why."""


class _NothingFound(Exception):
    """MIOpen reports success and offers nothing to run."""


def ladder(
    place: Place,
    device: int,
    problems: Sequence[Problem],
    interface: str = "find",
    observe: Optional[Observer] = None,
) -> Iterator[Step]:
    """Climb on HIP's ``device`` with the libraries of ``place``, by one of MIOpen's INTERFACES.

    A missing library or symbol is n/a, as is a device that is not there; no failure raises.
    """
    steps = _Steps(place, device, interface, observe)
    copy = _answer(steps.copying())
    yield copy
    for question in (*steps.multiplying(), *steps.convolving(problems), steps.normalising()):
        if copy.state == "pass":
            yield _answer(question)
        else:
            yield Step(question.rung, question.problem, question.direction, "blocked", "rung:copy", 0.0)


def _answer(question: _Question) -> Step:
    started = time.perf_counter()

    def step(state: str, message: str = "") -> Step:
        seconds = time.perf_counter() - started
        return Step(question.rung, question.problem, question.direction, state, message, seconds)

    try:
        result = question.compute()
    except (NotAvailable, _NotApplicable) as error:
        return step("n/a", str(error))
    except (CallFailed, LoadFailed, _NothingFound) as error:
        return step("error", str(error))
    done = step("pass")
    measured: Errors = reference.errors(result, question.expect())
    right, _, why = judge_float(measured, question.dtype)
    if right:
        return done
    return Step(question.rung, question.problem, question.direction, "wrong", why, done.seconds)


class _Steps:
    """The questions of one ladder; each library is loaded by the first one that needs it."""

    def __init__(self, place: Place, device: int, interface: str, observe: Optional[Observer]) -> None:
        self._place = place
        self._device = device
        self._run = {"find": _by_find, "immediate": _by_immediate, "find-2.0": _by_find2}[interface]
        self._observe = observe
        self._hip: Optional[Hip] = None
        self._rocblas: Optional[Rocblas] = None
        self._miopen: Optional[MiopenLibrary] = None

    def copying(self) -> _Question:
        content = bytes(range(256)) * (_COPY_BYTES // 256)

        def compute() -> Sequence[float]:
            with self._opened_hip().upload(content) as buffer:
                return list(buffer.read())

        return _Question("copy", "bytes", None, "float64", compute, lambda: list(content))

    def multiplying(self) -> list[_Question]:
        return [self._product(dtype) for dtype in ("float32", "float16", "bfloat16")]

    def _product(self, dtype: str) -> _Question:
        m, n, k = _GEMM_SIZES
        fill = exact_fill(dtype, k)
        a = reference.integers(m * k, fill.input_max, fill.density, seed=1)
        b = reference.integers(k * n, fill.weight_max, seed=2)

        def compute() -> Sequence[float]:
            hip, rocblas = self._opened_hip(), self._opened_rocblas()
            with ExitStack() as stack:
                factors = [
                    stack.enter_context(hip.upload(reference.encode(values, dtype))) for values in (a, b)
                ]
                c = stack.enter_context(hip.upload(b"\xff" * len(reference.encode([0] * (m * n), dtype))))
                if dtype == "float32":
                    rocblas.sgemm(m, n, k, factors[0], factors[1], c)
                else:
                    rocblas.gemm_ex(dtype, m, n, k, factors[0], factors[1], c)
                hip.synchronize()
                return reference.decode(c.read(), dtype)

        return _Question("gemm", dtype, None, dtype, compute, lambda: reference.matrix_product(m, n, k, a, b))

    def convolving(self, problems: Sequence[Problem]) -> list[_Question]:
        return [self._convolution(problem, direction) for problem in problems for direction in DIRECTIONS]

    def _convolution(self, problem: Problem, direction: str) -> _Question:
        shapes = {"fwd": problem.output_shape, "bwd-data": problem.input_shape}
        shape = shapes.get(direction, problem.weight_shape)

        def inputs() -> dict[str, list[int]]:
            return reference.operands(problem, direction, exact_fill(problem.dtype, problem.terms(direction)))

        def compute() -> Sequence[float]:
            if problem.transposed:
                raise _NotApplicable(
                    "a transposed convolution goes into MIOpen as another one's backward data"
                )
            if problem.flops > 2 * _MOST_PRODUCTS:
                raise _NotApplicable("too large for the reference in plain Python")
            hip, miopen = self._opened_hip(), self._opened_miopen()
            lying = {"x": problem.input_shape, "w": problem.weight_shape, "y": problem.output_shape}
            contents = {
                name: reference.encode(
                    reference.channels_last(values, lying[name]) if problem.channels_last else values,
                    problem.dtype,
                )
                for name, values in inputs().items()
            }
            with convolution(hip, miopen, problem, direction, contents) as made:
                self._run(hip, made)
                hip.synchronize()
                result = reference.decode(made.result.read(), problem.dtype)
            return reference.channels_first(result, shape) if problem.channels_last else result

        return _Question(
            "conv", problem.text, direction, problem.dtype, compute,
            lambda: reference.convolve(problem, direction, inputs()),
        )  # fmt: skip

    def normalising(self) -> _Question:
        shape = _BATCH_NORM_SHAPE
        x = reference.integers(prod(shape), 4, seed=3)
        scale, bias = [1.0, 2.0, -1.0], [0.0, 1.0, 2.0]

        def compute() -> Sequence[float]:
            hip, miopen = self._opened_hip(), self._opened_miopen()
            with ExitStack() as stack:
                buffers = [
                    stack.enter_context(hip.upload(reference.encode(values, "float32")))
                    for values in (x, scale, bias)
                ]
                y = stack.enter_context(hip.upload(b"\xff" * buffers[0].size))
                descriptor = miopen.tensor_descriptor("float32", shape)
                stack.enter_context(released(lambda: miopen.destroy_tensor_descriptor(descriptor)))
                tensors = Tensor(descriptor, buffers[0]), Tensor(descriptor, y)
                mean = stack.enter_context(hip.upload(b"\xff" * buffers[1].size))
                deviation = stack.enter_context(hip.upload(b"\xff" * buffers[1].size))
                miopen.batch_norm_training(*tensors, buffers[1], buffers[2], (mean, deviation))
                hip.synchronize()
                return reference.decode(y.read(), "float32")

        return _Question(
            "batch-norm", "float32", None, "float32", compute,
            lambda: reference.batch_norm(shape, x, scale, bias),
        )  # fmt: skip

    def _path(self, library: str) -> str:
        if library not in self._place.files:
            raise _NotApplicable(f"{self._place.folder} has no {library}")
        return self._place.files[library]

    def _opened_hip(self) -> Hip:
        if self._hip is None:
            hip = Hip(self._path("libamdhip64"), self._observe)
            count = hip.device_count()
            if self._device >= count:
                raise _NotApplicable(f"HIP sees {count} device(s), there is no device {self._device}")
            hip.set_device(self._device)
            self._hip = hip
        return self._hip

    def _opened_rocblas(self) -> Rocblas:
        if self._rocblas is None:
            rocblas = Rocblas(self._path("librocblas"), self._observe)
            rocblas.create()
            self._rocblas = rocblas
        return self._rocblas

    def _opened_miopen(self) -> MiopenLibrary:
        if self._miopen is None:
            miopen = MiopenLibrary(self._path("libMIOpen"), self._observe)
            miopen.create()
            self._miopen = miopen
        return self._miopen


def _by_find(hip: Hip, made: Convolution) -> None:
    with hip.allocate(made.workspace_size()) as workspace:
        found = made.find(workspace)
        if not found:
            raise _NothingFound("Find offers no algorithm")
        made.run(found[0], workspace)


def _by_immediate(hip: Hip, made: Convolution) -> None:
    solutions = made.solutions()
    if not solutions:
        raise _NothingFound("immediate mode offers no solution")
    made.compile(solutions[0])
    with hip.allocate(solutions[0].workspace) as workspace:
        made.run_immediate(solutions[0], workspace)


def _by_find2(hip: Hip, made: Convolution) -> None:
    with made.found_solutions() as solutions:
        if not solutions:
            raise _NothingFound("Find 2.0 offers no solution")
        found, solution = solutions[0]
        with hip.allocate(found.workspace) as workspace:
            made.run_found(solution, workspace)
