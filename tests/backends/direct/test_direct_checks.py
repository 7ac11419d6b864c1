"""The checks without torch, against the stand-in libraries."""

from __future__ import annotations

import pytest

from rocmprobe.backends.direct.checks import MOST_PRODUCTS, DirectCalls
from rocmprobe.checks.tools.case import Case
from rocmprobe.model.problems import parse_problem

PROBLEM = "conv2d-fp32-n1-c4-i8x8-k4-f3x3-p1"
DTYPES = ("float32", "float16", "bfloat16", "float64")
SPELT = {"fwd": "Forward", "bwd-data": "BackwardData", "bwd-weights": "BackwardWeights"}


@pytest.fixture(autouse=True)
def libraries(stand_in, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_in))


def convolved(text=PROBLEM, direction="fwd"):
    dtype = parse_problem(text).dtype
    return Case("cuda:0", "torch", "default", "miopen-direct", dtype, text, direction)


def multiplied(dtype="float32"):
    return Case("cuda:0", "torch", "default", "rocblas-direct", dtype)


def run(case, device=0):
    phases = []
    return DirectCalls(device, phases.append).run(case), phases


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_is_exact(dtype):
    result, phases = run(multiplied(dtype))
    assert (result.state, result.message, phases) == ("pass", "", ["first-call", "steady"])
    assert result.numerics["exact"]


@pytest.mark.parametrize("direction", SPELT)
@pytest.mark.parametrize(
    "text",
    [
        PROBLEM,
        "conv2d-fp16-n2-c4-i7x8-k6-f3x3-s2-g2-bias-nhwc",
        "conv_transpose2d-bf16-n1-c4-i5x6-k2-f3x3-s2",
    ],
)
def test_a_convolution_is_right_in_each_direction(text, direction):
    result, phases = run(convolved(text, direction))
    assert (result.state, result.message, phases) == ("pass", "", ["first-call", "steady"])
    assert (result.algorithm, result.workspace_bytes) == ("Direct", 0)


@pytest.mark.parametrize(
    ("case", "fault", "state", "cause", "message"),
    [
        (convolved(), "miopenConvolutionForward=wrong", "wrong", None, "the limit for sums of 36 in float32"),
        (convolved(), "miopenConvolutionForward=beyond", "wrong", None, "4 bytes outside the result"),
        (convolved(), "miopenFindConvolutionForwardAlgorithm=nothing", "error", "exception", "no algorithm"),
        (convolved(), "miopenFindConvolutionForwardAlgorithm=status:7", "error", "miopen-status",
         "miopenFindConvolutionForwardAlgorithm: miopenStatusUnknownError (7)"),
        (convolved(), "miopenCreate=status:7", "error", "miopen-status", "miopenCreate: "),
        (convolved(), "hipMalloc=status:2", "error", "out-of-memory", "hipMalloc: hipErrorOutOfMemory (2)"),
        (convolved(), "hipDeviceSynchronize=status:719", "error", "device-error", "hipErrorLaunchFailure"),
        (multiplied(), "rocblas_sgemm=wrong", "wrong", None, ""),
        (multiplied(), "rocblas_sgemm=status:6", "error", "exception", "rocblas_status_internal_error (6)"),
    ],
)  # fmt: skip
def test_each_fault_ends_as_the_right_result(monkeypatch, capfd, case, fault, state, cause, message):
    monkeypatch.setenv("LC_STAND_IN_FAULTS", fault)
    result, _ = run(case)
    assert (result.state, result.failure) == (state, cause)
    assert message in result.message
    # The log says which call printed what.
    log = capfd.readouterr().err
    assert f"[rocmprobe] {fault.partition('=')[0]}\n" in log
    assert not cause or cause == "exception" or f"[rocmprobe] {result.message}\n" in log


@pytest.mark.parametrize(
    ("case", "variables", "device", "message"),
    [
        (convolved(), {"LC_STAND_IN_DEVICES": "0"}, 0, "HIP sees 0 device(s), there is no device 0"),
        (multiplied(), {"LC_STAND_IN_DEVICES": "2"}, 2, "HIP sees 2 device(s), there is no device 2"),
        (convolved("conv2d-fp64-n1-c2-i4x4-k3-f3x3"), {}, 0, "MIOpen has no convolution in float64"),
        (convolved("conv2d-fp32-n8-c64-i56x56-k64-f3x3-p1"), {}, 0, "too many for the reference"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_not_applicable(monkeypatch, case, variables, device, message):
    assert parse_problem("conv2d-fp32-n8-c64-i56x56-k64-f3x3-p1").flops > 2 * MOST_PRODUCTS
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result, _ = run(case, device)
    assert result.state == "n/a"
    assert message in result.message


def test_a_library_that_is_missing_or_does_not_load(tmp_path, stand_in, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr("rocmprobe.backends.direct.libraries._DISTRIBUTION", ())
    (tmp_path / "libamdhip64.so.6").symlink_to(stand_in / "libamdhip64.so.6")
    for case, library in ((convolved(), "libMIOpen"), (multiplied(), "librocblas")):
        result, _ = run(case)
        assert result.state == "n/a"
        assert result.message.startswith(f"found no {library} next to torch, in LD_LIBRARY_PATH")
    (tmp_path / "libMIOpen.so.1").write_bytes(b"no library")
    result, _ = run(convolved())
    assert (result.state, result.failure) == ("error", "exception")


def test_the_device_answers_if_a_copy_does(monkeypatch):
    calls = DirectCalls(0, print)
    assert calls.device_answers()
    monkeypatch.setenv("LC_STAND_IN_FAULTS", "hipMemcpy=status:719")
    assert not calls.device_answers()
