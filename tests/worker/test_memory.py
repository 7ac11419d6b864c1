"""Memory measured against what is known of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from asking import context, planted

from rocmprobe.bypass import dispatch
from rocmprobe.checks import CHECKS
from rocmprobe.checks.memory import selected_backend
from rocmprobe.checks.tools.context import CheckResult

MIB = 1 << 20
PROBLEM = "conv2d-fp32-n4-c32-i28x28-k32-f3x3-p1"
RESULTS = 4 * (2 * 4 * 32 * 28 * 28 + 32 * 32 * 9)
KEPT = 4 * (4 * 32 * 28 * 28 + 32 * 32 * 9)
#: By PyTorch's own kernels on a CPU, where the columns are of the whole batch or of one sample.
OWN = {
    PROBLEM: "Slow2d",
    "conv2d-fp32-n4-c32-i28x28-k32-f1x1": "Slow2d",
    "conv2d-fp32-n4-c32-i28x28-k32-f3x3-p1-g4": "Slow2d",
    "conv2d-fp32-n4-c32-i28x28-k32-f3x3-p1-g32": "Slow2d",
    "conv2d-fp32-n4-c32-i28x28-k32-f3x3-p2-d2": "SlowDilated2d",
    "conv1d-fp32-n4-c32-i4000-k64-f10-s5": "Slow2d",
    "conv3d-fp32-n2-c8-i8x14x14-k16-f3x3x3-p1": "Slow3d",
    "conv3d-fp32-n2-c8-i8x14x14-k16-f3x3x3-p2-d2": "SlowDilated3d",
    "conv_transpose2d-fp32-n4-c64-i14x14-k32-f4x4-s2-p1": "SlowTranspose2d",
    "conv_transpose3d-fp32-n2-c16-i7x7x7-k8-f2x2x2-s2": "SlowTranspose3d",
    "conv2d-bf16-n4-c32-i28x28-k32-f3x3-p1": "Slow2d",
}


def memory(problem: str, setting: str, *layers: dispatch.Interceptor) -> CheckResult:
    return CHECKS["memory"].function(context(problem, setting, below=lambda: planted(*layers)))


class TestMemory:
    @pytest.mark.parametrize("setting", ["default", "vendor-off", "bypass"])
    def test_kept_for_backward_is_input_and_weight(self, setting: str) -> None:
        found = memory(PROBLEM, setting)
        assert found.state == "pass"
        assert found.memory["saved_bytes"] == found.memory["predicted_saved_bytes"] == KEPT

    def test_a_library_that_does_not_tell_has_a_least(self) -> None:
        found = memory(PROBLEM, "default").memory
        if not torch.backends.mkldnn.is_available():
            pytest.skip("this torch has no oneDNN")
        assert found["least_bytes"] == RESULTS <= found["peak_bytes"]
        assert "predicted_bytes" not in found

    @pytest.mark.parametrize("problem", OWN)
    def test_pytorch_s_own_kernels_take_what_their_source_says(self, problem: str) -> None:
        asked = context(problem, "vendor-off")
        shapes = (asked.the_problem.input_shape, asked.the_problem.weight_shape)
        with asked.apply_setting():
            taken = selected_backend(
                asked.the_problem, *(torch.ones(each, dtype=asked.dtype) for each in shapes)
            )
        assert taken == OWN[problem]
        found = memory(problem, "vendor-off")
        assert (found.state, found.message) == ("pass", "")
        # Transposed forward: of one sample in older versions.
        least = 0.3 if taken == "SlowTranspose2d" else 0.98
        assert least <= found.memory["peak_bytes"] / found.memory["predicted_bytes"] <= 1.01

    def test_above_the_output_and_in_forward_alone(self) -> None:
        found, output = memory(PROBLEM, "vendor-off").memory, 4 * 4 * 32 * 28 * 28
        assert found["above_output_bytes"] == found["peak_bytes"] - output
        assert found["forward_workspace_bytes"] == 9 * output

    def test_more_than_was_predicted_is_wrong(self) -> None:
        class Hoards(dispatch.Interceptor):
            name = "hoards"

            def convolution_backward(self, call: Any, proceed: Any) -> Any:
                kept = torch.empty(64 * MIB, dtype=torch.uint8)
                gradients = proceed(call)
                del kept
                return gradients

        found = memory(PROBLEM, "vendor-off", Hoards())
        assert found.state == "wrong"
        predicted = found.memory["predicted_bytes"]
        assert found.message == f"peak: {found.memory['peak_bytes']} bytes, {predicted} were predicted"

    def test_more_kept_than_was_predicted_is_wrong(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch.nn.functional as F

        native = F.conv2d
        monkeypatch.setattr(F, "conv2d", lambda *operands, **rest: native(*operands, **rest).exp().log())
        found = memory(PROBLEM, "default")
        assert found.state == "wrong"
        assert found.message.startswith("saved: ")
