"""Questions to the stand-in libraries, one at a time."""

from __future__ import annotations

from itertools import product

import pytest
from rows import every_row

from rocmprobe.backends.capi import Place, places
from rocmprobe.backends.capi.ladder import INTERFACES, MOST_PRODUCTS, CapiChecks
from rocmprobe.backends.capi.operator_checks import OPERATOR_CHECKS
from rocmprobe.checks import CHECKS
from rocmprobe.model.problems import parse_problem

#: The stand-in has a Winograd for the first alone.
WINOGRAD = parse_problem("conv2d-fp32-n1-c4-i8x8-k4-f3x3-p1")
NAIVE = parse_problem("conv2d-fp16-n1-c4-i6x6-k4-f3x3-p1-nhwc")
TRANSPOSED = parse_problem("conv_transpose2d-fp32-n2-c4-i5x5-k2-f3x3-s2-p1-o1-g2-bias")
SMALL = parse_problem("conv2d-fp32-n1-c3-i8x8-k4-f3x2-p1")
DTYPES = ("float32", "float16", "bfloat16", "float64")
RUNGS = (
    ("copy", "float32", None, None), ("elementwise", "float32", None, None),
    *(("gemm", dtype, None, None) for dtype in DTYPES),
    *(("convolution", "float32", SMALL, direction) for direction in ("fwd", "bwd-data", "bwd-weights")),
    ("batch-norm", "float32", None, None),
)  # fmt: skip
#: Every operator in each of its dtypes, by name.
OPERATORS = {
    f"{check}, {dtype}": (check, dtype, None, None)
    for check in OPERATOR_CHECKS
    for dtype in CHECKS[check].capi_dtypes or ()
}
#: The function of MIOpen in which an operator computes, and the message if it computes wrong numbers.
COMPUTING = (
    ("tensor-op, float32", "miopenOpTensor", "add equal shapes: result"),
    ("tensor-transform, float16", "miopenTransformTensor", "packed: result"),
    ("tensor-copy, float32", "CopyTensor", "packed: result"),
    ("tensor-cast, bfloat16", "CastTensor", "from float32: result"),
    ("tensor-set, float32", "miopenSetTensor", "packed: result"),
    ("tensor-scale, float16", "miopenScaleTensor", "packed: result"),
    ("bias, float32", "miopenConvolutionForwardBias", "forward: result"),
    ("bias, float16", "miopenConvolutionBackwardBias", "gradient: result"),
    ("convolution-relu, float32", "miopenExecuteFusionPlan", "output: result"),
    ("batch-norm-relu, float32", "miopenExecuteFusionPlan", "output: result"),
)


@pytest.fixture
def place(stand_in, tmp_path):
    [found] = places({"LD_LIBRARY_PATH": str(stand_in)}, tmp_path, [])
    return found


@pytest.mark.parametrize(("check", "dtype", "problem", "direction"), RUNGS)
def test_every_question_holds(place, check, dtype, problem, direction):
    step = CapiChecks(place, 0).answer(check, dtype, problem, direction)
    assert (step.state, step.message) == ("pass", "")
    assert step.timings["first_call"] > 0
    if check in ("gemm", "convolution"):
        assert step.numerics["exact"]
        assert step.numerics["rms_range"] == 0


@every_row("operator", OPERATORS)
def test_every_operator_is_right(place, operator):
    step = CapiChecks(place, 0).answer(*OPERATORS[operator])
    if operator == "convolution-relu, float16":
        # The stand-in has no kernel for it, as MIOpen 3.4.0 on RDNA1.
        assert step.state == "n/a"
        assert step.message.endswith("miopenCompileFusionPlan: miopenStatusUnsupportedOp (8)")
        return
    assert (step.state, step.message) == ("pass", "")
    assert step.numerics.get("exact", False) == (operator.split(",")[0] != "batch-norm-relu")


@every_row("operator, function, part", COMPUTING)
def test_an_operator_that_computes_wrong_numbers_or_writes_elsewhere_is_wrong(
    place, monkeypatch, operator, function, part
):
    for fault, message in (("wrong", f"{part}: "), ("beyond", " bytes outside the result were written")):
        monkeypatch.setenv("LC_STAND_IN_FAULTS", f"{function}={fault}")
        step = CapiChecks(place, 0).answer(*OPERATORS[operator])
        assert step.state == "wrong"
        assert message in step.message


@every_row(
    "faults, operator, state, message",
    [
        ("miopenOpTensor=status:7", "tensor-op, float32", "error",
         "add scaled: miopenOpTensor: miopenStatusUnknownError (7)"),
        ("miopenConvolutionBackwardBias=status:7", "bias, float16", "error",
         "gradient: miopenConvolutionBackwardBias: miopenStatusUnknownError (7); forward correct"),
        ("miopenCompileFusionPlan=status:7", "convolution-relu, float32", "error",
         "miopenCompileFusionPlan: miopenStatusUnknownError (7)"),
        ("miopenExecuteFusionPlan=status:8", "batch-norm-relu, float32", "error",
         "miopenExecuteFusionPlan: miopenStatusUnsupportedOp (8)"),
        # Two ways in which MIOpen refuses a plan.
        ("miopenCompileFusionPlan=status:6", "batch-norm-relu, float32", "n/a",
         "miopenCompileFusionPlan: miopenStatusNotImplemented (6)"),
        ("miopenCreateOpBiasForward=status:8", "convolution-relu, float32", "n/a",
         "miopenCreateOpBiasForward: miopenStatusUnsupportedOp (8)"),
    ],
)  # fmt: skip
def test_a_status_of_an_operator_is_an_error_and_a_refused_plan_is_not_applicable(
    place, monkeypatch, faults, operator, state, message
):
    monkeypatch.setenv("LC_STAND_IN_FAULTS", faults)
    step = CapiChecks(place, 0).answer(*OPERATORS[operator])
    assert (step.state, step.cause) == (state, "miopen-status" if state == "error" else None)
    assert message in step.message


@pytest.mark.parametrize("interface", INTERFACES)
@every_row(
    "problem, direction", product((WINOGRAD, NAIVE, TRANSPOSED, SMALL), ("fwd", "bwd-data", "bwd-weights"))
)
def test_convolution_by_every_interface(place, interface, problem, direction):
    step = CapiChecks(place, 0, interface).answer("convolution", problem.dtype, problem, direction)
    assert (step.state, step.message) == ("pass", "")
    assert step.numerics["repeatable"]
    fastest = "Winograd" if problem is WINOGRAD and direction != "bwd-weights" else "Direct"
    assert step.algorithm == fastest
    assert (step.solver is None) == (interface == "find")


@pytest.mark.parametrize(
    ("faults", "failing", "state", "message", "cause"),
    [
        ("hipMemcpy=status:1", RUNGS[0], "error", "hipMemcpy: hipErrorInvalidValue (1)", "device-error"),
        ("hipMalloc=status:2", RUNGS[0], "error", "hipMalloc: hipErrorOutOfMemory (2)", "out-of-memory"),
        ("hipMemset=status:98", RUNGS[1], "error", "hipMemset: hipErrorInvalidDeviceFunction (98)",
         "device-error"),
        ("rocblas_sgemm=status:6", RUNGS[2], "error", "rocblas_sgemm: rocblas_status_internal_error (6)",
         "exception"),
        ("rocblas_sgemm=wrong", RUNGS[2], "wrong", "rms_range", None),
        ("rocblas_dgemm=wrong", RUNGS[5], "wrong", "rms_range", None),
        ("miopenFindConvolutionBackwardDataAlgorithm=status:7", RUNGS[7], "error",
         "miopenFindConvolutionBackwardDataAlgorithm: miopenStatusUnknownError (7)", "miopen-status"),
        ("miopenConvolutionBackwardWeights=wrong", RUNGS[8], "wrong", "rms_range", None),
        ("miopenConvolutionForward=beyond", RUNGS[6], "wrong", "4 bytes outside the result", None),
        ("miopenConvolutionBackwardData=beyond", RUNGS[7], "wrong", "4 bytes outside the result", None),
        ("miopenBatchNormalizationForwardTraining=status:7", RUNGS[9], "error",
         "miopenStatusUnknownError (7); backward and inference correct", "miopen-status"),
        ("miopenBatchNormalizationForwardTraining=wrong", RUNGS[9], "wrong", "training: output: rms_range",
         None),
        ("miopenBatchNormalizationBackward=wrong", RUNGS[9], "wrong", "backward: bias gradient", None),
        ("miopenBatchNormalizationForwardInference=wrong", RUNGS[9], "wrong", "inference: output", None),
        ("miopenCreate=status:7", RUNGS[9], "error", "miopenCreate: miopenStatusUnknownError (7)",
         "miopen-status"),
    ],
)  # fmt: skip
def test_a_fault_is_told(place, monkeypatch, faults, failing, state, message, cause):
    monkeypatch.setenv("LC_STAND_IN_FAULTS", faults)
    step = CapiChecks(place, 0).answer(*failing)
    assert (step.state, step.cause) == (state, cause)
    assert message in step.message


def test_a_fault_of_one_call_leaves_the_other_questions(place, monkeypatch):
    monkeypatch.setenv("LC_STAND_IN_FAULTS", "miopenFindConvolutionForwardAlgorithm=status:7")
    ladder = CapiChecks(place, 0)
    states = [ladder.answer(*rung).state for rung in RUNGS]
    assert states == ["error" if rung == RUNGS[6] else "pass" for rung in RUNGS]
    assert ladder.device_answers()
    assert ladder.miopen_version() == "3.4.0"


def test_a_device_that_is_lost_does_not_answer(place, monkeypatch):
    ladder = CapiChecks(place, 0)
    assert ladder.device_answers()
    monkeypatch.setenv("LC_STAND_IN_FAULTS", "hipMalloc=status:98")
    assert not ladder.device_answers()


@pytest.mark.parametrize(("devices", "device"), [("0", 0), ("2", 2)])
def test_a_device_that_is_not_there(place, monkeypatch, devices, device):
    monkeypatch.setenv("LC_STAND_IN_DEVICES", devices)
    step = CapiChecks(place, device).answer("copy")
    assert step.state == "n/a"
    assert step.message == f"HIP sees {devices} device(s), there is no device {device}"


def test_what_a_library_or_the_reference_lacks_is_not_applicable(place, old_stand_in, tmp_path):
    files = dict(place.files)
    del files["librocblas"]
    without = CapiChecks(Place("environment", "/libraries", files), 0)
    step = without.answer("gemm")
    assert (step.state, step.message) == ("n/a", "/libraries has no librocblas")
    assert without.answer(*RUNGS[6]).state == "pass"

    large = parse_problem("conv2d-fp32-n8-c64-i56x56-k64-f3x3-p1")
    assert large.flops > 2 * MOST_PRODUCTS
    step = CapiChecks(place, 0).answer("convolution", "float32", large, "fwd")
    assert step.state == "n/a"
    assert "too many for the reference" in step.message

    [old] = places({"LD_LIBRARY_PATH": str(old_stand_in)}, tmp_path, [])
    step = CapiChecks(old, 0, "find-2.0").answer(*RUNGS[6])
    assert step.state == "n/a"
    assert step.message.endswith("has no miopenCreateConvProblem")
    for check in ("tensor-copy", "tensor-cast"):
        step = CapiChecks(old, 0).answer(check, "float16")
        assert step.state == "n/a"
        assert f"has no _ZN6miopen10{check[7:].capitalize()}Tensor" in step.message


def test_a_library_that_does_not_load(tmp_path):
    broken = tmp_path / "libamdhip64.so"
    broken.write_bytes(b"no library")
    step = CapiChecks(Place("environment", str(tmp_path), {"libamdhip64": str(broken)}), 0).answer("copy")
    assert (step.state, step.cause) == ("error", "exception")


def test_every_call_is_observed_and_every_phase_told(place):
    calls, phases = [], []
    ladder = CapiChecks(place, 0, observe=calls.append, report_phase=phases.append)
    assert ladder.answer(*RUNGS[6]).state == "pass"
    started = [call.function for call in calls if call.number is None]
    assert started == [call.function for call in calls if call.number is not None]
    assert "miopenFindConvolutionForwardAlgorithm" in started
    assert phases == ["first-call", "steady"]


@pytest.mark.parametrize(
    ("variables", "state", "message", "algorithm"),
    [
        ({"MIOPEN_DEBUG_CONV_WINOGRAD": "0"}, "pass", "", "Direct"),
        ({"MIOPEN_DEBUG_CONV_WINOGRAD": "0", "MIOPEN_DEBUG_CONV_DIRECT": "0"}, "pass", "", "GEMM"),
        ({"MIOPEN_FIND_MODE": "2"}, "pass", "", "GEMM"),
        ({"MIOPEN_FIND_MODE": "WORD"}, "error",
         "miopenCreateConvolutionDescriptor: miopenStatusUnknownError (7)", None),
        ({"MIOPEN_DEBUG_FIND_ONLY_SOLVER": "GemmFwdRest;ConvDirectNaiveConvFwd"}, "pass", "", "Direct"),
        ({"MIOPEN_DEBUG_FIND_ONLY_SOLVER": "fft"}, "error",
         "miopenFindConvolutionForwardAlgorithm: miopenStatusUnknownError (7)", None),
        ({"MIOPEN_DEBUG_FIND_ONLY_SOLVER": "Bogus"}, "error",
         "miopenConvolutionForwardGetWorkSpaceSize: miopenStatusBadParm (3)", None),
        ({"LC_STAND_IN_WINOGRAD": "compile"}, "pass", "", "Direct"),
        ({"LC_STAND_IN_WINOGRAD": "wrong"}, "wrong", "rms_range", "Winograd"),
        ({"LC_STAND_IN_NAIVE": "status:7"}, "error",
         "miopenFindConvolutionForwardAlgorithm: miopenStatusUnknownError (7)", None),
        ({"LC_STAND_IN_NAIVE": "status:7", "MIOPEN_DEBUG_CONV_DIRECT": "0"}, "pass", "", "Winograd"),
    ],
)  # fmt: skip
def test_the_stand_in_obeys_switches_and_its_solvers_fail_as_told(
    place, monkeypatch, variables, state, message, algorithm
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    step = CapiChecks(place, 0).answer("convolution", "float32", WINOGRAD, "fwd")
    assert (step.state, step.algorithm) == (state, algorithm)
    assert message in step.message
