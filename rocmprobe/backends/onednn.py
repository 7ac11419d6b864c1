"""oneDNN, PyTorch's convolution library on a CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

from rocmprobe.backends.base import Meter, Reading

# ONEDNN_VERBOSE=1 prints one line per executed primitive; v1 marks oneDNN 3, which put a field in
# front, and a time stamp may stand behind it:
#   onednn_verbose[,v1][,123.4],[primitive,]exec,cpu,convolution,jit:avx512_core,forward_training,...
_EXECUTED = re.compile(
    r"^(?:onednn|dnnl)_verbose,(?:v\d+,)?(?:[\d.]+,)?(?:primitive,)?exec,cpu,(?:de)?convolution,([^,\s]+),"
    r"(?:.*,alg:(?:de)?convolution_(\w+))?",
    re.MULTILINE,
)


class Onednn:
    name = "onednn"
    library = "oneDNN"
    device_type = "cpu"
    rounds_parts = True

    @property
    def trace_variables(self) -> dict[str, str]:
        return {"ONEDNN_VERBOSE": "1"}

    @contextmanager
    def vendor_library_off(self) -> Iterator[None]:
        import torch

        # Not `mkldnn.flags`: it sets every flag that it is not given back to its default.
        mkldnn: Any = torch.backends.mkldnn
        before = mkldnn.enabled
        mkldnn.enabled = False
        try:
            yield
        finally:
            mkldnn.enabled = before

    def library_version(self) -> Optional[str]:
        """From ``torch.__config__``, which carries the version torch was built with."""
        import torch

        match = re.search(r"MKL-DNN v([\d.]+)", torch.__config__.show())
        return match[1] if match else None

    def synchronize(self, device: str) -> None:
        """Nothing is queued on a CPU."""

    @contextmanager
    def meter(self, device: str) -> Iterator[Meter]:
        """Every allocation and release of torch's CPU allocator, as the profiler records them.

        What oneDNN allocates inside itself (scratchpads) is not seen, and the release of what was
        allocated before may be missed: meter what allocates and releases inside.
        """
        import torch

        meter = Meter()
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profiler:
            yield meter
        meter.peak_bytes = _peak(profiler.profiler.kineto_results.events())

    def read(self, log: str) -> Reading:
        executed = _EXECUTED.findall(log)
        if not executed:
            return Reading()
        implementation, algorithm = executed[-1]
        return Reading(implementation, _family(implementation, algorithm))

    def is_fallback(self, implementation: str) -> bool:
        return _family(implementation, "") == "naive"

    def demands_exactness(self) -> bool:
        """oneDNN picks Winograd only where it is asked for by name."""
        return True


def _family(implementation: str, algorithm: str) -> Optional[str]:
    """oneDNN calls GEMM and its reference loops "direct", too: there the name tells."""
    if implementation.startswith("ref"):
        return "naive"
    if implementation.startswith("gemm"):
        return "GEMM"
    return {"direct": "Direct", "winograd": "Winograd"}.get(algorithm)


def _peak(events: Any) -> int:
    """Peak of the running sum over the profiler's ``[memory]`` events, in the order they happened."""
    live = peak = 0
    changes = [event for event in events if event.name() == "[memory]"]
    # torch 2.x counts in ns, 1.13 in us; only the order matters.
    changes.sort(key=lambda event: event.start_ns() if hasattr(event, "start_ns") else event.start_us())
    for event in changes:
        live += event.nbytes()
        peak = max(peak, live)
    return peak
