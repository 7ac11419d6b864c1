"""Vendor libraries that compute PyTorch's convolution: oneDNN on a CPU, cuDNN on NVIDIA, MIOpen on AMD."""

from __future__ import annotations

from rocmprobe.backends.base import Backend
from rocmprobe.backends.gpu import Cudnn, Miopen
from rocmprobe.backends.onednn import Onednn

__all__ = ["BACKENDS", "Backend", "Cudnn", "Miopen", "Onednn", "backend_for"]

BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (Onednn(), Cudnn(), Miopen())}


def backend_for(device: str, torch_kind: str) -> Backend:
    """Return the backend of torch's ``device`` ("cpu" or e.g. "cuda:0").

    On a GPU, ``torch_kind`` "rocm" selects MIOpen, any other kind cuDNN.
    """
    if device.startswith("cuda"):
        return BACKENDS["miopen" if torch_kind == "rocm" else "cudnn"]
    return BACKENDS["onednn"]
