"""Memory measured against what is known of it, and the search for the largest batch."""

from __future__ import annotations

import math
import os
import resource
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from asking import BACKEND, context, planted
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.backends import BACKENDS
from rocmprobe.bypass import dispatch
from rocmprobe.checks import CHECKS
from rocmprobe.checks.memory import selected_backend
from rocmprobe.checks.memory_sweep import search
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import DeviceFailure, out_of_memory

MIB = 1 << 20
PROBLEM = "conv2d-fp32-n4-c32-i28x28-k32-f3x3-p1"
RESULTS = 4 * (2 * 4 * 32 * 28 * 28 + 32 * 32 * 9)
KEPT = 4 * (4 * 32 * 28 * 28 + 32 * 32 * 9)
#: Large images and few sums, so that memory is filled in little time.
WIDE = "conv2d-fp32-n2-c8-i64x64-k8-f1x1"
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


class TestSearch:
    @given(first=st.integers(1, 300), room=st.integers(0, 5000), most=st.integers(1, 4000))
    def test_what_it_finds_is_next_to_what_does_not_fit(self, first: int, room: int, most: int) -> None:
        tried: list[int] = []

        def fits(batch: int) -> bool:
            tried.append(batch)
            return batch <= room

        found = search(first, fits, lambda: True, most)
        assert found.largest <= min(room, most)
        assert max(tried) <= most
        assert len(tried) <= 2 + 2 * math.log2(most + 1) + math.log2(first)
        if room >= most:
            assert (found.largest, found.ended_by) == (most, "batch")
        else:
            assert found.ended_by == "memory"
            assert found.refused is not None
            assert room < found.refused <= found.largest + max(1, found.largest // 8)

    def test_time_ends_it(self) -> None:
        left = iter((True, True, False))
        found = search(4, lambda batch: True, lambda: next(left))
        assert (found.largest, found.refused, found.ended_by) == (8, None, "time")


class TestLimit:
    def test_a_known_allocation_is_refused_above_the_bound_and_not_below(self) -> None:
        before = resource.getrlimit(resource.RLIMIT_AS)
        limit = BACKEND.memory_limit("cpu", 2048 * MIB)
        refusals: list[Exception] = []

        def fits(count: int) -> bool:
            """Nothing is written there, so it costs the machine nothing."""
            try:
                with limit():
                    torch.empty(count * MIB, dtype=torch.uint8)
            except RuntimeError as error:
                refusals.append(error)
                return False
            return True

        # glibc reserves 64 MiB for each thread that comes to allocate.
        assert fits(1900)
        assert not fits(2060)
        found = search(4, fits, lambda: True)
        assert 1600 <= found.largest < (found.refused or 0) <= 2304
        assert all(map(out_of_memory, refusals))
        assert resource.getrlimit(resource.RLIMIT_AS) == before

    def test_it_is_lifted_after_any_error_and_never_loosens_what_was_there(self) -> None:
        before = resource.getrlimit(resource.RLIMIT_AS)
        with pytest.raises(ZeroDivisionError), BACKEND.memory_limit("cpu", 8 * MIB)():
            raise ZeroDivisionError
        assert resource.getrlimit(resource.RLIMIT_AS) == before
        with BACKEND.memory_limit("cpu", 64 * MIB)():
            tight = resource.getrlimit(resource.RLIMIT_AS)
            with BACKEND.memory_limit("cpu", 512 * MIB)():
                assert resource.getrlimit(resource.RLIMIT_AS) == tight

    def test_at_most_half_of_what_is_free(self) -> None:
        assert BACKEND.fillable_bytes("cpu", MIB) == MIB
        everything = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        assert 0 < BACKEND.fillable_bytes("cpu", 1 << 60) <= everything // 2

    @pytest.mark.parametrize("free", [8 * MIB, 64 * MIB])
    def test_of_a_gpu_no_more_than_it_has(self, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 8 * MIB))
        assert BACKENDS["miopen"].fillable_bytes("cuda:0", MIB) == 6 * MIB


@pytest.mark.skipif(
    torch.__version__.startswith("1."),
    reason="oneDNN of torch 1.13 may end the process where it gets no memory",
)
class TestSweep:
    def sweep(self, setting: str, **changes: Any) -> CheckResult:
        return self.swept(context(WIDE, setting, **{"sweep_bytes": 24 * MIB, "seconds": 10.0, **changes}))

    def swept(self, asked: CheckContext) -> CheckResult:
        """In a thread of its own: where oneDNN had no memory for its code it makes none there any more."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(CHECKS["memory-sweep"].function, asked).result()

    @pytest.mark.parametrize("setting", ["default", "vendor-off", "bypass"])
    def test_out_of_memory_is_the_answer(self, setting: str) -> None:
        before = resource.getrlimit(resource.RLIMIT_AS)
        found = self.sweep(setting)
        assert (found.state, found.message) == ("pass", "")
        assert (found.memory["ended_by"], found.memory["bound_bytes"]) == ("memory", 24 * MIB)
        assert 4 < found.memory["largest_batch"] < found.memory["refused_batch"]
        # Input, output, and the gradient of each are 128 KiB a sample each. What this process freed before
        # the limit may serve, too.
        assert found.memory["largest_batch"] * (4 * 128 << 10) <= (24 + 64) * MIB
        assert resource.getrlimit(resource.RLIMIT_AS) == before

    def test_a_library_without_memory_for_its_own_code_ends_the_search(self) -> None:
        """Of this problem oneDNN refuses a batch by not creating a primitive, and creates none any more."""
        sour = "conv2d-fp32-n4-c96-i16x16-k96-f3x3-p1"
        found = self.swept(context(sour, "default", sweep_bytes=64 * MIB, seconds=10.0))
        assert (found.state, found.memory["ended_by"]) == ("pass", "memory")
        assert 0 < found.memory["largest_batch"] < found.memory["refused_batch"]

    def test_a_batch_that_a_library_refuses_by_a_name_of_its_own(self) -> None:
        """Where oneDNN gets no memory it says something else; the same batch works without the limit."""

        class OutOfScratch(Refuses):
            def refuses(self, call: Any) -> bool:
                limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
                return limited and super().refuses(call)

        refuses = OutOfScratch(8, "could not create a primitive")
        found = self.sweep("default", below=lambda: planted(refuses))
        assert (found.state, found.memory["refused_batch"]) == ("pass", 8)

    def test_another_failure_stays_one(self) -> None:
        with pytest.raises(DeviceFailure) as failure:
            self.sweep("default", below=lambda: planted(Refuses(4, "miopenStatusUnknownError")))
        assert "miopenStatusUnknownError" in str(failure.value.__cause__)

    def test_a_gpu_s_refusal_is_known_by_its_words(self) -> None:
        refuses = Refuses(8, "HIP out of memory. Tried to allocate 2.25 GiB")
        found = self.sweep("default", below=lambda: planted(refuses))
        assert (found.memory["largest_batch"], found.memory["refused_batch"]) == (7, 8)

    def test_what_is_wrong_afterwards_is_told(self) -> None:
        class Sour(Refuses):
            """As a cache that is left half written."""

            def convolution(self, call: Any, proceed: Any) -> Any:
                output = super().convolution(call, proceed)
                return output * 1.5 if self.met else output

        sour = Sour(8, "out of memory")
        found = self.sweep("default", below=lambda: planted(sour))
        assert found.state == "wrong"
        assert found.message.startswith("after the search for the largest batch: fwd: output: error ")

    def test_time_ends_it(self) -> None:
        found = self.sweep("default", seconds=0.0)
        assert (found.memory["ended_by"], found.memory["largest_batch"]) == ("time", 0)


class Refuses(dispatch.Interceptor):
    """A library that has no memory from a batch on."""

    name = "refuses"

    def __init__(self, batch: int, words: str) -> None:
        self._batch, self._words = batch, words
        self.met = False

    def refuses(self, call: Any) -> bool:
        return bool(call.input.shape[0] >= self._batch)

    def convolution(self, call: Any, proceed: Any) -> Any:
        if self.refuses(call):
            self.met = True
            raise RuntimeError(self._words)
        return proceed(call)
