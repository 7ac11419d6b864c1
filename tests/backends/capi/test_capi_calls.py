"""Every binding through ctypes, against the stand-in libraries."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest
from rows import every_row

from rocmprobe.backends.capi import (
    Call,
    CallFailed,
    Hip,
    MiopenLibrary,
    NotAvailable,
    Rocblas,
)
from rocmprobe.backends.capi.convolution import convolution
from rocmprobe.backends.capi.reference import (
    channels_first,
    channels_last,
    convolve,
    decode,
    integers,
    matrix_product,
    operands,
)
from rocmprobe.kernels.exact import encode
from rocmprobe.model.numerics import exact_fill
from rocmprobe.model.problems import parse_problem

DIRECTIONS = ("fwd", "bwd-data", "bwd-weights")
SPELT = {"fwd": "Forward", "bwd-data": "BackwardData", "bwd-weights": "BackwardWeights"}
RESULT = {"fwd": "y", "bwd-data": "x", "bwd-weights": "w"}


@pytest.fixture
def hip(stand_in):
    return Hip(str(stand_in / "libamdhip64.so.6"))


@pytest.fixture
def rocblas(stand_in):
    library = Rocblas(str(stand_in / "librocblas.so.4"))
    library.create()
    yield library
    library.destroy()


@pytest.fixture
def miopen(stand_in):
    library = MiopenLibrary(str(stand_in / "libMIOpen.so.1"))
    library.create()
    yield library
    library.destroy()


def told(monkeypatch, function, fault):
    monkeypatch.setenv("LC_STAND_IN_FAULTS", f"unrelated=abort;{function}={fault}")


class TestHip:
    def test_a_device(self, hip):
        assert hip.device_count() == 1
        hip.set_device(0)
        assert hip.runtime_version() == 60443484
        assert hip.device_name(0) == "Stand-in Radeon"
        assert hip.memory() == (5 << 30, 6 << 30)

    def test_the_arch_name_in_both_layouts_of_the_properties(self, hip, old_stand_in):
        assert hip.arch_name(0) == "gfx1030"
        assert Hip(str(old_stand_in / "libamdhip64.so.6")).arch_name(0) == "gfx1010"

    def test_no_device_is_no_failure(self, hip, monkeypatch):
        monkeypatch.setenv("LC_STAND_IN_DEVICES", "0")
        assert hip.device_count() == 0
        with pytest.raises(CallFailed) as failure:
            hip.set_device(0)
        assert failure.value.call == Call("hipSetDevice", 101, "hipErrorInvalidDevice")

    def test_what_is_copied_comes_back(self, hip):
        with hip.upload(b"content") as buffer:
            hip.synchronize()
            assert buffer.read() == b"content"
            buffer.fill(0xFF)
            assert buffer.read() == b"\xff" * 7
            with hip.upload(b"another") as other:
                buffer.copy_from(other)
            assert buffer.read() == b"another"
            with pytest.raises(ValueError, match="8 bytes do not fit into a buffer of 7"):
                buffer.write(b"too much")
        with hip.upload(b"") as empty:
            assert empty.read() == b""

    def test_memory_is_freed_once(self, hip):
        calls = []
        observed = Hip(hip.library.path, calls.append)
        with observed.allocate(16) as buffer:
            buffer.free()
        assert [call.function for call in calls if call.number == 0] == ["hipMalloc", "hipFree"]

    @pytest.mark.parametrize(
        ("function", "act"),
        [
            ("hipInit", lambda hip: hip.device_count()),
            ("hipGetDeviceCount", lambda hip: hip.device_count()),
            ("hipRuntimeGetVersion", lambda hip: hip.runtime_version()),
            ("hipDeviceGetName", lambda hip: hip.device_name(0)),
            ("hipGetDevicePropertiesR0600", lambda hip: hip.arch_name(0)),
            ("hipMemGetInfo", lambda hip: hip.memory()),
            ("hipMalloc", lambda hip: hip.allocate(1)),
            ("hipMemcpy", lambda hip: hip.upload(b"x")),
            ("hipMemset", lambda hip: hip.allocate(1).fill(0)),
            ("hipFree", lambda hip: hip.allocate(1).free()),
            ("hipDeviceSynchronize", lambda hip: hip.synchronize()),
        ],
    )
    def test_every_call_tells_its_status(self, hip, monkeypatch, function, act):
        told(monkeypatch, function, "status:98")
        with pytest.raises(CallFailed, match=rf"{function}: hipErrorInvalidDeviceFunction \(98\)"):
            act(hip)

    def test_too_much_memory(self, hip):
        with pytest.raises(CallFailed, match="hipErrorOutOfMemory"):
            hip.allocate(7 << 30)


class TestRocblas:
    M, N, K = 3, 4, 5

    def product(self, hip, rocblas, dtype):
        a, b = integers(self.M * self.K, 4, seed=1), integers(self.K * self.N, 2, seed=2)
        size = len(encode([0], dtype)) * self.M * self.N
        with ExitStack() as stack:
            buffers = [stack.enter_context(hip.upload(encode(values, dtype))) for values in (a, b)]
            c = stack.enter_context(hip.allocate(size))
            c.fill(0xFF)
            rocblas.gemm(dtype, self.M, self.N, self.K, *buffers, c)
            return decode(c.read(), dtype), matrix_product(self.M, self.N, self.K, a, b)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
    def test_a_product(self, hip, rocblas, dtype):
        result, expected = self.product(hip, rocblas, dtype)
        assert result == expected

    def test_one_wrong_number_shows(self, hip, rocblas, monkeypatch):
        told(monkeypatch, "rocblas_sgemm", "wrong")
        result, expected = self.product(hip, rocblas, "float32")
        assert result[0] == expected[0] + 1
        assert result[1:] == expected[1:]

    @pytest.mark.parametrize(
        ("number", "name"),
        [(1, "rocblas_status_invalid_handle"), (6, "rocblas_status_internal_error"),
         (13, "rocblas_status_check_numerics_fail"), (15, "rocblas_status_arch_mismatch"),
         (99, "unknown rocblas_status")],
    )  # fmt: skip
    def test_the_status_has_its_name(self, hip, rocblas, monkeypatch, number, name):
        told(monkeypatch, "rocblas_sgemm", f"status:{number}")
        with pytest.raises(CallFailed) as failure:
            self.product(hip, rocblas, "float32")
        assert failure.value.call == Call("rocblas_sgemm", number, name)

    def test_the_version(self, rocblas):
        assert rocblas.version() == "4.4.0.stand-in"


def computed(hip, miopen, problem, direction, run):
    """The result of a direction and the reference's, both in PyTorch's layout."""
    inputs = operands(problem, direction, exact_fill(problem.dtype, problem.terms(direction)))
    shapes = {"x": problem.input_shape, "w": problem.weight_shape, "y": problem.output_shape}
    lying = {
        name: channels_last(values, shapes[name]) if problem.channels_last else values
        for name, values in inputs.items()
    }
    contents = {name: encode(values, problem.dtype) for name, values in lying.items()}
    with convolution(hip, miopen, problem, direction, contents) as made:
        run(made)
        hip.synchronize()
        result = decode(made.result.read(), problem.dtype)
    if problem.channels_last:
        result = channels_first(result, shapes[RESULT[direction]])
    return result, convolve(problem, direction, inputs)


def by_find(hip):
    def run(made):
        with hip.allocate(made.workspace_size()) as workspace:
            found = made.find(workspace)
            assert [(entry.algorithm, entry.workspace) for entry in found] == [("Direct", 0), ("GEMM", 6912)]
            made.run(found[-1], workspace)

    return run


def by_immediate(hip):
    def run(made):
        [naive, gemm] = made.solutions()
        assert (naive.algorithm, naive.workspace) == ("Direct", 0)
        assert naive.number in NAIVE
        made.compile(gemm)
        with hip.allocate(gemm.workspace) as workspace:
            made.run_immediate(gemm, workspace)

    return run


def by_find2(hip):
    def run(made):
        with made.found_solutions() as [(naive, solution), (gemm, _)]:
            assert (naive.algorithm, naive.milliseconds) == ("Direct", 12.25)
            assert naive.number in NAIVE
            assert (gemm.algorithm, gemm.workspace) == ("GEMM", 6912)
            made.run_found(solution)

    return run


#: MIOpen's ids of the naive solvers, by direction.
NAIVE = (85, 86, 87)
WAYS = {"find": by_find, "immediate": by_immediate, "find 2.0": by_find2}
FAILING = {
    "find": (
        "miopenConvolution{}GetWorkSpaceSize", "miopenFindConvolution{}Algorithm", "miopenConvolution{}",
    ),
    "immediate": (
        "miopenConvolution{}GetSolutionCount", "miopenConvolution{}GetSolution",
        "miopenConvolution{}CompileSolution", "miopenConvolution{}Immediate",
    ),
    "find 2.0": (
        "miopenCreateConvProblem", "miopenSetProblemTensorDescriptor", "miopenFindSolutions",
        "miopenGetSolutionWorkspaceSize", "miopenGetSolutionTime", "miopenGetSolutionSolverId",
        "miopenGetSolverIdConvAlgorithm", "miopenRunSolution", "miopenDestroySolution",
        "miopenDestroyProblem",
    ),
}  # fmt: skip
SMALL = "conv2d-fp32-n2-c4-i5x6-k6-f3x2-s2x1-p1-g2"


class TestConvolution:
    @pytest.mark.parametrize("direction", DIRECTIONS)
    @pytest.mark.parametrize("way", WAYS)
    @every_row(
        "text",
        [SMALL, "conv2d-fp16-n1-c2-i4x4-k3-f3x3-p1", "conv2d-bf16-n1-c2-i4x4-k3-f3x3-d2-p2",
         "conv2d-fp64-n1-c2-i4x4-k3-f1x1", "conv2d-fp32-n2-c3-i4x5-k2-f3x3-p1-nhwc",
         "conv1d-fp32-n2-c3-i9-k4-f3-s2-p1", "conv3d-fp32-n1-c2-i3x4x5-k2-f2x3x2-p1"],
    )  # fmt: skip
    def test_the_numbers_are_the_references(self, hip, miopen, text, way, direction):
        result, expected = computed(hip, miopen, parse_problem(text), direction, WAYS[way](hip))
        assert result == expected

    @pytest.mark.parametrize("direction", DIRECTIONS)
    @pytest.mark.parametrize(
        ("way", "function"),
        [("find", "miopenConvolution{}"), ("immediate", "miopenConvolution{}Immediate"),
         ("find 2.0", "miopenRunSolution")],
    )  # fmt: skip
    def test_one_wrong_number_shows(self, hip, miopen, monkeypatch, way, function, direction):
        told(monkeypatch, function.format(SPELT[direction]), "wrong")
        result, expected = computed(hip, miopen, parse_problem(SMALL), direction, WAYS[way](hip))
        assert result[0] == expected[0] + 1
        assert result[1:] == expected[1:]

    @pytest.mark.parametrize("direction", DIRECTIONS)
    @pytest.mark.parametrize(("way", "function"), [(way, name) for way in FAILING for name in FAILING[way]])
    def test_every_call_tells_its_status(self, hip, miopen, monkeypatch, capfd, way, function, direction):
        function = function.format(SPELT[direction])
        told(monkeypatch, function, "status:7")
        with pytest.raises(CallFailed) as failure:
            computed(hip, miopen, parse_problem(SMALL), direction, WAYS[way](hip))
        assert failure.value.call == Call(function, 7, "miopenStatusUnknownError")
        assert f"MIOpen Error: stand_in.c:1: {function}" in capfd.readouterr().err

    @pytest.mark.parametrize(
        ("way", "missing"),
        [("immediate", "miopenConvolutionForwardGetSolutionCount"), ("find 2.0", "miopenCreateConvProblem")],
    )
    def test_what_an_older_library_lacks_is_not_available(self, hip, old_stand_in, way, missing):
        miopen = MiopenLibrary(str(old_stand_in / "libMIOpen.so.1"))
        miopen.create()
        with pytest.raises(NotAvailable, match=missing):
            computed(hip, miopen, parse_problem(SMALL), "fwd", WAYS[way](hip))
        result, expected = computed(hip, miopen, parse_problem(SMALL), "fwd", by_find(hip))
        assert result == expected

    def test_what_no_kernel_writes_is_not_a_number(self, hip, miopen):
        result, _ = computed(hip, miopen, parse_problem(SMALL), "fwd", lambda made: None)
        assert all(value != value for value in result)

    @pytest.mark.parametrize(
        ("way", "function"),
        [("find", "miopenConvolutionForward"), ("immediate", "miopenConvolutionForwardImmediate"),
         ("find 2.0", "miopenRunSolution")],
    )  # fmt: skip
    def test_what_fails_later_does_not_hide_the_first_failure(self, hip, miopen, monkeypatch, way, function):
        later = ("hipFree", "miopenDestroyTensorDescriptor", "miopenDestroyConvolutionDescriptor",
                 "miopenDestroySolution", "miopenDestroyProblem")  # fmt: skip
        told(monkeypatch, function, ";".join(["status:7", *(f"{name}=status:1" for name in later)]))
        with pytest.raises(CallFailed, match=rf"{function}: miopenStatusUnknownError"):
            computed(hip, miopen, parse_problem(SMALL), "fwd", WAYS[way](hip))

    def test_a_transposed_convolution_is_refused(self, hip, miopen):
        problem = parse_problem("conv_transpose2d-fp32-n1-c2-i4x4-k2-f3x3")
        refused = convolution(hip, miopen, problem, "fwd", {})
        with pytest.raises(ValueError, match="backward data of another convolution"), refused:
            pass


class TestMiopen:
    def test_the_version(self, miopen):
        assert miopen.version() == "3.4.0"

    @pytest.mark.parametrize(
        ("number", "name"),
        list(enumerate(
            ["NotInitialized", "InvalidValue", "BadParm", "AllocFailed", "InternalError", "NotImplemented",
             "UnknownError", "UnsupportedOp", "GpuOperationsSkipped", "VersionMismatch"],
            start=1,
        )),
    )  # fmt: skip
    def test_the_status_has_its_name(self, stand_in, monkeypatch, number, name):
        told(monkeypatch, "miopenCreate", f"status:{number}")
        with pytest.raises(CallFailed) as failure:
            MiopenLibrary(str(stand_in / "libMIOpen.so.1")).create()
        assert failure.value.call == Call("miopenCreate", number, f"miopenStatus{name}")


PROGRAM = """
import sys
from rocmprobe.backends.capi import MiopenLibrary
library = MiopenLibrary(sys.argv[1], lambda call: print(call.function, call.number, flush=True))
library.version()
library.create()
"""


@pytest.mark.parametrize(
    ("fault", "died_of"), [("abort", signal.SIGABRT), ("segv", signal.SIGSEGV), ("hang", None)]
)
def test_the_observer_knows_the_call_that_ended_the_process(stand_in, fault, died_of):
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(stand_in / "libMIOpen.so.1")],
        env={"LC_STAND_IN_FAULTS": f"miopenCreate={fault}", "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [child.stdout.readline() for _ in range(3)]
    if died_of is None:
        child.kill()
        died_of = signal.SIGKILL
    rest, _ = child.communicate()
    assert lines == ["miopenGetVersion None\n", "miopenGetVersion 0\n", "miopenCreate None\n"]
    assert rest == ""
    assert child.returncode == -died_of
