"""The ladder against the stand-in libraries."""

from __future__ import annotations

import pytest

from rocmprobe.backends.capi import Place, places
from rocmprobe.backends.capi.ladder import INTERFACES, ladder
from rocmprobe.problems import parse_problem

SMALL = parse_problem("conv2d-fp32-n1-c3-i8x8-k4-f3x3-p1")
HALF = parse_problem("conv2d-fp16-n1-c4-i6x6-k4-f3x3-p1-nhwc")


@pytest.fixture
def place(stand_in, tmp_path):
    [found] = places({"LD_LIBRARY_PATH": str(stand_in)}, tmp_path, [])
    return found


def states(steps):
    return [(step.rung, step.direction or step.problem, step.state) for step in steps]


CLIMBED = [
    ("copy", "bytes", "pass"),
    ("gemm", "float32", "pass"), ("gemm", "float16", "pass"), ("gemm", "bfloat16", "pass"),
    ("conv", "fwd", "pass"), ("conv", "bwd-data", "pass"), ("conv", "bwd-weights", "pass"),
    ("batch-norm", "float32", "pass"),
]  # fmt: skip


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("problem", [SMALL, HALF], ids=lambda problem: problem.text)
def test_everything_holds(place, interface, problem):
    assert states(ladder(place, 0, [problem], interface)) == CLIMBED


@pytest.mark.parametrize(
    ("faults", "failing", "state", "message"),
    [
        ("rocblas_sgemm=status:6", ("gemm", "float32"), "error",
         "rocblas_sgemm: rocblas_status_internal_error (6)"),
        ("rocblas_sgemm=wrong", ("gemm", "float32"), "wrong", "rms_range"),
        ("miopenFindConvolutionBackwardDataAlgorithm=status:7", ("conv", "bwd-data"), "error",
         "miopenFindConvolutionBackwardDataAlgorithm: miopenStatusUnknownError (7)"),
        ("miopenConvolutionBackwardWeights=wrong", ("conv", "bwd-weights"), "wrong", "rms_range"),
        ("miopenBatchNormalizationForwardTraining=status:7", ("batch-norm", "float32"), "error",
         "miopenStatusUnknownError (7)"),
        ("miopenBatchNormalizationForwardTraining=wrong", ("batch-norm", "float32"), "wrong", "rms_range"),
    ],
)  # fmt: skip
def test_only_the_step_at_fault_fails(place, monkeypatch, faults, failing, state, message):
    monkeypatch.setenv("STAND_IN_FAULTS", faults)
    steps = list(ladder(place, 0, [SMALL]))
    assert states(steps) == [
        (rung, what, state if (rung, what) == failing else good) for rung, what, good in CLIMBED
    ]
    [failed] = [step for step in steps if step.state != "pass"]
    assert message in failed.message


def test_a_failed_copy_blocks_the_rest(place, monkeypatch):
    monkeypatch.setenv("STAND_IN_FAULTS", "hipMalloc=status:2")
    first, *rest = ladder(place, 0, [SMALL])
    assert (first.state, first.message) == ("error", "hipMalloc: hipErrorOutOfMemory (2)")
    assert {(step.state, step.message) for step in rest} == {("blocked", "rung:copy")}


@pytest.mark.parametrize(("devices", "device"), [("0", 0), ("2", 2)])
def test_a_device_that_is_not_there(place, monkeypatch, devices, device):
    monkeypatch.setenv("STAND_IN_DEVICES", devices)
    first, *_ = ladder(place, device, [])
    assert first.state == "n/a"
    assert first.message == f"HIP sees {devices} device(s), there is no device {device}"


def test_no_handle_is_an_error_of_every_step_that_needs_it(place, monkeypatch):
    monkeypatch.setenv("STAND_IN_FAULTS", "miopenCreate=status:7")
    steps = list(ladder(place, 0, [SMALL]))
    assert {step.rung for step in steps if step.state == "error"} == {"conv", "batch-norm"}
    assert {step.rung for step in steps if step.state == "pass"} == {"copy", "gemm"}


def test_what_a_library_or_the_reference_lacks_is_not_applicable(place, old_stand_in, tmp_path):
    files = dict(place.files)
    del files["librocblas"]
    transposed = parse_problem("conv_transpose2d-fp32-n1-c2-i4x4-k2-f3x3")
    large = parse_problem("conv2d-fp32-n8-c64-i56x56-k64-f3x3-p1")
    steps = list(ladder(Place("environment", "/libraries", files), 0, [transposed, large]))
    assert {step.message for step in steps if step.rung == "gemm"} == {"/libraries has no librocblas"}
    assert {step.state for step in steps if step.rung in ("gemm", "conv")} == {"n/a"}

    [old] = places({"LD_LIBRARY_PATH": str(old_stand_in)}, tmp_path, [])
    [step] = [
        step for step in ladder(old, 0, [SMALL], "find-2.0") if (step.rung, step.direction) == ("conv", "fwd")
    ]
    assert step.state == "n/a"
    assert step.message.endswith("has no miopenCreateConvProblem")


def test_a_library_that_does_not_load(tmp_path):
    broken = tmp_path / "libamdhip64.so"
    broken.write_bytes(b"no library")
    first, *rest = ladder(Place("environment", str(tmp_path), {"libamdhip64": str(broken)}), 0, [])
    assert first.state == "error"
    assert {step.state for step in rest} == {"blocked"}


def test_every_call_is_observed(place):
    calls = []
    assert len(list(ladder(place, 0, [SMALL], observe=calls.append))) == len(CLIMBED)
    started = [call.function for call in calls if call.number is None]
    assert started == [call.function for call in calls if call.number is not None]
    assert "miopenFindConvolutionForwardAlgorithm" in started
