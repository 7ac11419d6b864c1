"""Every binding through ctypes, against the stand-in libraries."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from rocmprobe.backends.direct.miopen import Miopen, convolution
from rocmprobe.backends.direct.reference import convolve, decode, integers, matrix_product, operands
from rocmprobe.backends.direct.rocblas import Rocblas
from rocmprobe.kernels.exact import encode
from rocmprobe.model.numerics import exact_fill
from rocmprobe.model.problems import parse_problem
from rocmprobe.runtimes.calls import Call, CallFailed
from rocmprobe.runtimes.hip import Hip

DIRECTIONS = ("fwd", "bwd-data", "bwd-weights")
SPELT = {"fwd": "Forward", "bwd-data": "BackwardData", "bwd-weights": "BackwardWeights"}


@pytest.fixture
def hip(stand_in):
    return Hip(str(stand_in / "libamdhip64.so.6"))


@pytest.fixture
def rocblas(stand_in):
    return Rocblas(str(stand_in / "librocblas.so.4"))


@pytest.fixture
def miopen(stand_in):
    return Miopen(str(stand_in / "libMIOpen.so.1"))


def told(monkeypatch, function, fault):
    monkeypatch.setenv("LC_STAND_IN_FAULTS", f"unrelated=abort;{function}={fault}")


class TestHip:
    def test_a_device(self, hip):
        assert hip.device_count() == 1
        hip.set_device(0)
        assert hip.runtime_version() == 60443484

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
            ("hipGetDevicePropertiesR0600", lambda hip: hip.arch_name(0)),
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


def computed(hip, miopen, problem, direction, algorithm="Direct"):
    """The result of a direction and the reference's; without an algorithm, nothing is run."""
    inputs = operands(problem, direction, exact_fill(problem.dtype, problem.terms(direction)))
    contents = {name: encode(values, problem.dtype) for name, values in inputs.items()}
    with ExitStack() as stack:
        made = stack.enter_context(convolution(hip, miopen, problem, direction, contents))
        workspace = stack.enter_context(hip.allocate(made.workspace_size()))
        found = {entry.algorithm: entry for entry in made.find(workspace)}
        assert {name: entry.workspace for name, entry in found.items()} == {"Direct": 0, "GEMM": 6912}
        if algorithm:
            made.run(found[algorithm], workspace)
        hip.synchronize()
        return decode(made.result.read(), problem.dtype), convolve(problem, direction, inputs)


SMALL = "conv2d-fp32-n2-c4-i5x6-k6-f3x2-s2x1-p1-g2"


class TestConvolution:
    @pytest.mark.parametrize("direction", DIRECTIONS)
    @pytest.mark.parametrize("algorithm", ["Direct", "GEMM"])
    @pytest.mark.parametrize(
        "text",
        [SMALL, "conv2d-fp16-n1-c2-i4x4-k3-f3x3-p1", "conv2d-bf16-n1-c2-i4x4-k3-f3x3-d2-p2",
         "conv1d-fp32-n2-c3-i9-k4-f3-s2-p1", "conv3d-fp32-n1-c2-i3x4x5-k2-f2x3x2-p1"],
    )  # fmt: skip
    def test_the_numbers_are_the_references(self, hip, miopen, text, algorithm, direction):
        result, expected = computed(hip, miopen, parse_problem(text), direction, algorithm)
        assert result == expected

    @pytest.mark.parametrize("direction", DIRECTIONS)
    def test_one_wrong_number_shows(self, hip, miopen, monkeypatch, direction):
        told(monkeypatch, f"miopenConvolution{SPELT[direction]}", "wrong")
        result, expected = computed(hip, miopen, parse_problem(SMALL), direction)
        assert result[0] == expected[0] + 1
        assert result[1:] == expected[1:]

    @pytest.mark.parametrize("direction", DIRECTIONS)
    @pytest.mark.parametrize(
        "function",
        ["miopenConvolution{}GetWorkSpaceSize", "miopenFindConvolution{}Algorithm", "miopenConvolution{}",
         "miopenSetTensorDescriptor", "miopenInitConvolutionNdDescriptor"],
    )  # fmt: skip
    def test_every_call_tells_its_status(self, hip, miopen, monkeypatch, capfd, function, direction):
        function = function.format(SPELT[direction])
        told(monkeypatch, function, "status:7")
        with pytest.raises(CallFailed) as failure:
            computed(hip, miopen, parse_problem(SMALL), direction)
        assert failure.value.call == Call(function, 7, "miopenStatusUnknownError")
        assert f"MIOpen Error: stand_in.c:1: {function}" in capfd.readouterr().err

    def test_what_no_kernel_writes_is_not_a_number(self, hip, miopen):
        result, _ = computed(hip, miopen, parse_problem(SMALL), "fwd", "")
        assert all(value != value for value in result)

    def test_what_fails_later_does_not_hide_the_first_failure(self, hip, miopen, monkeypatch):
        later = ("hipFree", "miopenDestroyTensorDescriptor", "miopenDestroyConvolutionDescriptor")
        faults = ";".join(["status:7", *(f"{name}=status:1" for name in later)])
        told(monkeypatch, "miopenConvolutionForward", faults)
        with pytest.raises(CallFailed, match=r"miopenConvolutionForward: miopenStatusUnknownError"):
            computed(hip, miopen, parse_problem(SMALL), "fwd")

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
            Miopen(str(stand_in / "libMIOpen.so.1"))
        assert failure.value.call == Call("miopenCreate", number, f"miopenStatus{name}")
