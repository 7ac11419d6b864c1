"""Backend for oneDNN, PyTorch's convolution library on a CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Optional

from rocmprobe.backends.base import switched
from rocmprobe.checks.tools.context import Meter
from rocmprobe.knowledge.miopen_log import Reading
from rocmprobe.knowledge.settings import LIBRARIES

# ONEDNN_VERBOSE=1 prints one line per executed primitive. oneDNN 3 added the field v1. A time stamp can
# follow v1:
#   onednn_verbose[,v1][,123.4],[primitive,]exec,cpu,convolution,jit:avx512_core,forward_training,...
_EXECUTED = re.compile(
    r"^(?:onednn|dnnl)_verbose,(?:v\d+,)?(?:[\d.]+,)?(?:primitive,)?exec,cpu,(?:de)?convolution,([^,\s]+),"
    r"(?:.*,alg:(?:de)?convolution_(\w+))?",
    re.MULTILINE,
)


class Onednn:
    name = "onednn"
    library = LIBRARIES["onednn"]
    device_type = "cpu"
    rounds_parts = True

    @property
    def trace_variables(self) -> dict[str, str]:
        return {"ONEDNN_VERBOSE": "1"}

    @contextmanager
    def vendor_library_off(self) -> Iterator[None]:
        import torch

        # Without oneDNN, PyTorch gives batches of 16 and more to NNPACK, which uses Winograd and FFT. Disable
        # NNPACK too, so that PyTorch's own kernels run. Source: use_nnpack in
        # aten/src/ATen/native/Convolution.cpp. torch 1.13 has no switch for NNPACK.
        nnpack: Any = getattr(torch.backends, "nnpack", None)
        # Do not use `mkldnn.flags`, because a call resets every flag that the call does not pass.
        off = switched([(torch.backends.mkldnn, "enabled", False)])
        with off, nnpack.flags(enabled=False) if nnpack else nullcontext():
            yield

    def library_version(self) -> Optional[str]:
        """Return the version of oneDNN with which torch was built."""
        import torch

        match = re.search(r"MKL-DNN v([\d.]+)", torch.__config__.show())
        return match[1] if match else None

    def synchronize(self, device: str) -> None:
        """Do nothing, because a call on a CPU returns when its work is done."""

    @contextmanager
    def meter(self, device: str) -> Iterator[Meter]:
        """Measure torch's CPU allocator with torch's profiler.

        Allocations inside oneDNN are not measured. In the block, release only memory that the block
        allocated.
        """
        import torch

        meter = Meter()
        # `torch.profiler.profile` would import torch._dynamo, which takes more than a second.
        profiler: Any = torch.autograd.profiler.profile(profile_memory=True, use_kineto=True)
        with profiler:
            yield meter
        meter.peak_bytes = _peak(profiler.kineto_results.events())

    def read(self, log: str) -> Reading:
        executed = _EXECUTED.findall(log)
        if not executed:
            return Reading()
        implementation, algorithm = executed[-1]
        return Reading(implementation, _family(implementation, algorithm))

    def is_fallback(self, implementation: str) -> bool:
        return _family(implementation, "") == "naive"

    def demands_exactness(self) -> bool:
        # oneDNN uses Winograd (inexact) only if the caller requests Winograd by name.
        return True


def _family(implementation: str, algorithm: str) -> Optional[str]:
    # For GEMM and for the reference loops, oneDNN also logs the algorithm "direct".
    if implementation.startswith("ref"):
        return "naive"
    if implementation.startswith("gemm"):
        return "GEMM"
    return {"direct": "Direct", "winograd": "Winograd"}.get(algorithm)


def _peak(events: Any) -> int:
    """Return the peak memory in bytes from the profiler's ``[memory]`` events."""
    live = peak = 0
    changes = [event for event in events if event.name() == "[memory]"]
    # torch 2.x has times in ns, 1.13 in us. Only the order of the events matters.
    changes.sort(key=lambda event: event.start_ns() if hasattr(event, "start_ns") else event.start_us())
    for event in changes:
        live += event.nbytes()
        peak = max(peak, live)
    return peak
