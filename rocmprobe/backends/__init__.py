"""Vendor libraries behind PyTorch's convolution: oneDNN on a CPU, cuDNN on NVIDIA, MIOpen on AMD."""

from __future__ import annotations

from rocmprobe.backends.base import Backend
from rocmprobe.backends.gpu import Cudnn, Miopen
from rocmprobe.backends.onednn import Onednn

__all__ = ["BACKENDS", "Backend", "Cudnn", "Miopen", "Onednn", "backend_for"]

BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (Onednn(), Cudnn(), Miopen())}


def backend_for(device: str, torch_kind: str) -> Backend:
    """Return the backend of torch's ``device`` ("cpu", "cuda:0") in a build of ``torch_kind``.

    cuDNN and MIOpen share the device type. ``torch_kind`` is "rocm" if ``torch.version.hip`` is set, which
    selects MIOpen.
    """
    if device.startswith("cuda"):
        return BACKENDS["miopen" if torch_kind == "rocm" else "cudnn"]
    return BACKENDS["onednn"]
