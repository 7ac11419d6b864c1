"""The kernels of :mod:`rocmprobe.kernels` on PyTorch's devices: loaded, or the reason why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

import torch

from rocmprobe import kernels
from rocmprobe.bypass.operators import capturing, lock_across_forks
from rocmprobe.kernels import KernelsUnavailable

#: Torch's device types on which the kernels run.
DEVICE_TYPES = {"cuda"}
_lock = lock_across_forks()


@dataclass
class _Kernels:
    """Kernels for one dtype on one device, or the reason why they cannot be used."""

    refusal: str
    module: Optional[kernels.Module] = None


#: Results of earlier calls, keyed by device and dtype.
_known: dict[tuple[torch.device, str], _Kernels] = {}


def stream(device: torch.device) -> int:
    """Return the handle of the current stream."""
    return int(torch.cuda.current_stream(device).cuda_stream) if device.type == "cuda" else 0


def refusal(device: torch.device, dtype: str) -> str:
    """Return why rocmprobe's own kernels cannot compute ``dtype`` on ``device``, or "" if they can.

    If the self-test of the kernels has passed on this machine, the first call compiles and loads the kernels.
    If the self-test has not run yet and ``ROCMPROBE_BYPASS_KERNELS=1`` is set, the first call runs the
    self-test in a child process.
    """
    return _kernels(device, dtype).refusal


def module(device: torch.device, dtype: str) -> Optional[kernels.Module]:
    """Return the kernels for ``dtype`` on ``device``, or None if :func:`refusal` returns a reason."""
    return _kernels(device, dtype).module


def _kernels(device: torch.device, dtype: str) -> _Kernels:
    if device.type not in DEVICE_TYPES:
        return _Kernels("no GPU computes here")
    if dtype not in kernels.DTYPES:
        return _Kernels(f"there are none for {dtype}")
    known = _known.get((device, dtype))
    if known is None:
        if capturing(device):
            return _Kernels("kernels cannot be compiled or loaded while a graph is captured")
        with _lock:
            known = _known.get((device, dtype)) or _found_out(device, dtype)
            _known[device, dtype] = known
    return known


def state() -> dict[str, str]:
    """Return "used" or the reason for refusal, keyed by checked device and dtype, e.g. "cuda:0 float32"."""
    return {f"{device} {dtype}": known.refusal or "used" for (device, dtype), known in list(_known.items())}


def forget() -> None:
    """Forget the results of :func:`refusal`."""
    with _lock:
        _known.clear()


def tried(device: torch.device, dtype: str) -> kernels.SelfTest:
    """Run the self-test in this process, and store its verdict.

    Raises:
        KernelsUnavailable: if the kernels cannot be compiled or loaded.
    """
    try:
        return kernels.verdict(device.index or 0, dtype)
    finally:
        forget()


def _found_out(device: torch.device, dtype: str) -> _Kernels:
    try:
        return _Kernels("", kernels.available(device.index or 0, dtype))
    except KernelsUnavailable as unavailable:
        return _Kernels(unavailable.reason)
