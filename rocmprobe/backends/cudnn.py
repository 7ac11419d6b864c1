"""cuDNN, PyTorch's convolution library on NVIDIA GPUs; and what MIOpen shares with it.

PyTorch drives MIOpen through the same device type and the same switches (``torch.backends.cudnn``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

from rocmprobe.backends.base import Meter, Reading


class Cudnn:
    name = "cudnn"
    library = "cuDNN"
    device_type = "cuda"
    rounds_parts = True

    @property
    def trace_variables(self) -> dict[str, str]:
        return {}

    @contextmanager
    def vendor_library_off(self) -> Iterator[None]:
        import torch

        # Not `cudnn.flags`: it sets every flag that it is not given back to its default.
        before = torch.backends.cudnn.enabled
        torch.backends.cudnn.enabled = False
        try:
            yield
        finally:
            torch.backends.cudnn.enabled = before

    def library_version(self) -> Optional[str]:
        import torch

        cudnn: Any = torch.backends.cudnn
        version = cudnn.version() if cudnn.is_available() else None
        return None if version is None else str(version)

    def synchronize(self, device: str) -> None:
        import torch

        torch.cuda.synchronize(device)

    @contextmanager
    def meter(self, device: str) -> Iterator[Meter]:
        import torch

        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        meter = Meter()
        yield meter
        torch.cuda.synchronize(device)
        meter.peak_bytes = torch.cuda.max_memory_allocated(device) - before

    def read(self, log: str) -> Reading:
        """cuDNN's log names descriptors, not kernels: nothing to read."""
        return Reading()

    def is_fallback(self, implementation: str) -> bool:
        return False

    def demands_exactness(self) -> bool:
        """cuDNN may choose Winograd or FFT without saying so."""
        return False
