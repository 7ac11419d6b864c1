"""The check of convolution: what right kernels owe, and what is told of wrong ones."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from asking import BACKEND as CPU
from asking import context
from faulty_convolutions import changed, planted
from tiers import OLD_TORCH

from rocmprobe.bypass import dispatch
from rocmprobe.checks.convolution import convolution
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.model.numerics import PARTS, SUMS, TRANSFORMS
from rocmprobe.model.problem_matrix import entries

torch = pytest.importorskip("torch")
SMALL = "conv2d-fp32-n2-c4-i6x6-k4-f3x3-p1"


def asked(
    text: str, direction: str = "fwd", apply_setting: Any = nullcontext, exact: bool = True
) -> CheckResult:
    return convolution(context(text, direction=direction, apply_setting=apply_setting, exact=exact))


@pytest.mark.parametrize(
    ("text", "direction"),
    [
        ("conv2d-bf16-n256-c16-i8x8-k16-f3x3-p1", "bwd-weights"),
        ("conv2d-fp16-n256-c16-i8x8-k16-f3x3-p1", "bwd-weights"),
        ("conv2d-fp16-n64-c8-i6x6-k8-f1x1", "bwd-weights"),
        ("conv2d-fp16-n1-c8-i20x20-k8-f15x15-p7", "bwd-data"),
        # Where padding alone is summed, even magnitudes come to zero.
        ("conv2d-bf16-n256-c2-i1x1-k2-f3x3-p1", "bwd-weights"),
        ("conv3d-bf16-n1-c2-i9x9x9-k2-f7x7x7-s3", "bwd-data"),
    ],
)
def test_pytorchs_own_kernels_in_half_precision_are_right_with_many_parts(text: str, direction: str) -> None:
    answer = asked(text, direction, CPU.vendor_library_off)
    assert (answer.state, answer.numerics["owed"]) == ("pass", PARTS), answer.message


@pytest.mark.skipif(not hasattr(torch.backends, "nnpack"), reason="this torch cannot disable NNPACK")
def test_without_onednn_large_batches_are_exact() -> None:
    assert asked("conv2d-fp32-n16-c16-i28x28-k16-f3x3-p1", "fwd", CPU.vendor_library_off).state == "pass"


def test_what_is_owed_decides_what_is_asked() -> None:
    assert "cancelling" in asked(SMALL).numerics
    assert asked(SMALL).numerics["owed"] == SUMS
    other = asked(SMALL, exact=False).numerics
    assert other["owed"] == TRANSFORMS
    assert not {"cancelling", "bound_ratio"} & set(other)


def test_a_shape_of_its_own_is_wrong() -> None:
    answer = asked(SMALL, apply_setting=changed(lambda output: output[:1]))
    assert (answer.state, answer.message) == ("wrong", "output: shape (1, 4, 6, 6) instead of (2, 4, 6, 6)")


def test_the_worst_element_and_a_map_are_told() -> None:
    def doubled(output: Any) -> Any:
        output[1, 2] *= 2
        return output

    answer = asked(SMALL, apply_setting=changed(doubled))
    assert answer.state == "wrong"
    assert answer.numerics["miopen_rule"] == "fails"
    assert "MIOpen's own tests would accept" not in answer.message
    assert answer.numerics["worst"]["index"][:2] == [1, 2]
    assert answer.evidence[1].startswith("error map: 4 row(s) over 4 channel(s)")
    assert [line.split()[1].strip("#+") for line in answer.evidence[2:]].count("." * 64) == 3


@pytest.mark.skipif(OLD_TORCH, reason="torch before 2.0 has no float16 convolution on a CPU")
def test_small_errors_everywhere_have_a_worst_one_and_no_map() -> None:
    """None is beyond its own limit; together they are too much."""

    def blurred(output: Any) -> Any:
        return output + 4e-3 * output.abs().max() * torch.sign(output)

    answer = asked("conv2d-fp16-n2-c4-i6x6-k4-f3x3-p1", apply_setting=changed(blurred), exact=False)
    assert answer.state == "wrong"
    assert "rms_range" in answer.message
    assert "bad_share" not in answer.numerics
    assert len(answer.evidence) == 1


def test_not_a_number_twice_is_repeatable() -> None:
    def lost(output: Any) -> Any:
        output[0, 0] = float("nan")
        return output

    answer = asked(SMALL, apply_setting=changed(lost))
    assert answer.numerics["repeatable"] is True
    assert "not finite" in answer.message


def test_a_result_that_comes_and_goes_is_judged_each_time() -> None:
    calls = iter(range(100))

    def second(output: Any) -> Any:
        return output * 2 if next(calls) == 1 else output

    answer = asked(SMALL, apply_setting=changed(second))
    assert (answer.state, answer.numerics["repeatable"]) == ("wrong", False)


def kept_finite(output: Any) -> Any:
    return torch.nan_to_num(output)


def as_channels_last(output: Any) -> Any:
    return output.contiguous(memory_format=torch.channels_last) if output.dim() == 4 else output


def beyond_the_eighth_sample(output: Any) -> Any:
    return torch.cat((output[:8], output[8:] * 2))


@pytest.mark.parametrize("direction", ["fwd", "bwd-data", "bwd-weights"])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("fault", "message"),
    [(kept_finite, "propagate NaN"), (as_channels_last, "memory format")],
)
def test_faults_of_special_operands_are_found(fault: Any, message: str, exact: bool, direction: str) -> None:
    answer = asked("conv2d-fp32-n2-c4-i6x6-k6-f3x3", direction, changed(fault), exact)
    assert (answer.state, message in answer.message) == ("wrong", True), answer.message


class OperandFault(dispatch.Interceptor):
    """A fault that changes the input (in backward, the output's gradient) before the convolution."""

    name = "operand fault"

    def __init__(self, change: Any) -> None:
        self._change = change

    def convolution(self, call: Any, proceed: Any) -> Any:
        return proceed(replace(call, input=self._change(call.input)))

    def convolution_backward(self, call: Any, proceed: Any) -> Any:
        return proceed(replace(call, grad_output=self._change(call.grad_output)))


def clamped(operand: Any) -> Any:
    return operand.clamp(-256, 256)


def misread(operand: Any) -> Any:
    return operand * 2 if operand.data_ptr() % 16 else operand


@pytest.mark.parametrize("direction", ["fwd", "bwd-data", "bwd-weights"])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("fault", "message"), [(clamped, "with operands times 1024"), (misread, "with misaligned operands")]
)
def test_faults_in_reading_operands_are_found(fault: Any, message: str, exact: bool, direction: str) -> None:
    answer = asked(SMALL, direction, lambda: planted(OperandFault(fault)), exact)
    assert (answer.state, message in answer.message) == ("wrong", True), answer.message


@pytest.mark.parametrize("direction", ["fwd", "bwd-data"])
def test_samples_beyond_the_eighth_are_tested_at_level_quick(direction: str) -> None:
    (problem,) = (entry.problem for entry in entries("quick") if entry.variant == "batch-17")
    assert asked(problem.text, direction).state == "pass"
    assert asked(problem.text, direction, changed(beyond_the_eighth_sample)).state == "wrong"
