"""Backend for oneDNN, PyTorch's convolution library on a CPU."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
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
_M_MMAP_THRESHOLD = -3


class Onednn:
    name = "onednn"
    library = LIBRARIES["onednn"]
    device_type = "cpu"
    rounds_parts = True

    @property
    def trace_variables(self) -> dict[str, str]:
        return {"ONEDNN_VERBOSE": "1"}

    def vendor_library_off(self) -> AbstractContextManager[None]:
        import torch

        # Do not use `mkldnn.flags`, because a call resets every flag that the call does not pass.
        return switched([(torch.backends.mkldnn, "enabled", False)])

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

    def fillable_bytes(self, device: str, wanted: int) -> int:
        """Return ``wanted``, but at most half of the free memory."""
        found = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
        return wanted if found is None else min(wanted, int(found[1]) << 9)

    def memory_limit(self, device: str, above: int) -> Callable[[], AbstractContextManager[None]]:
        """Return a function that creates a context with a limit on the address space (RLIMIT_AS).

        From this call on, glibc returns freed memory at once, so later allocations are a little slower.
        """
        import resource

        _keep_no_freed_memory()
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + above

        @contextmanager
        def limited() -> Iterator[None]:
            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            set_already = [each for each in (soft, hard) if each != resource.RLIM_INFINITY]
            resource.setrlimit(resource.RLIMIT_AS, (min([limit, *set_already]), hard))
            try:
                yield
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

        return limited

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


def _keep_no_freed_memory() -> None:
    """Make glibc return large freed blocks to the kernel at once."""
    # glibc would keep up to about 60 MiB of freed blocks, a different amount each time. These blocks would
    # count towards a memory limit.
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.mallopt(_M_MMAP_THRESHOLD, 1 << 17)
        library.malloc_trim(0)


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
