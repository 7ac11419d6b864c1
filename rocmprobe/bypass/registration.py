"""Registration of rocmprobe's kernels for PyTorch's convolution operators.

All interceptors must be added here, because PyTorch keeps only one Python kernel for an operator and dispatch
key.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any, Callable, Optional

import torch

from rocmprobe.bypass import autograd, dispatch
from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.bypass.dispatch import Interceptor
from rocmprobe.bypass.operators import KEYS, kernel_library, lock_across_forks

_lock = lock_across_forks()
#: Objects that keep the kernels registered, keyed by dispatch key.
_libraries: dict[str, Any] = {}


def add_interceptor(interceptor: Interceptor, device_type: str) -> None:
    """Intercept the convolutions of ``device_type``, "cpu" or "cuda" (also for ROCm), with ``interceptor``.

    Raises:
        ValueError: if the device type is unknown, or if this interceptor was already added.
    """
    key = _key(device_type)
    with _lock:
        _register(key, *_DEVICE_KERNELS)
        if interceptor.keeps_backward:
            _register("Autograd" + key, *_AUTOGRAD_KERNELS)
        dispatch.add(interceptor, device_type)


def remove_interceptor(interceptor: Interceptor, device_type: str) -> None:
    """Stop intercepting new calls with ``interceptor``.

    Without interceptors, PyTorch's kernels are registered again, unless other Python threads are running.

    Raises:
        ValueError: if the device type is unknown, or if the interceptor was not added.
    """
    key = _key(device_type)
    with _lock:
        dispatch.remove(interceptor, device_type)
        # PyTorch frees a kernel even while the kernel runs, in this thread or another.
        if threading.active_count() > 1 or _in_kernel():
            return
        left = dispatch.all_interceptors(device_type)
        if not any(each.keeps_backward for each in left):
            _libraries.pop("Autograd" + key, None)
        if not left:
            _libraries.pop(key, None)


def _in_kernel() -> bool:
    """Return True if this thread is inside one of the registered kernels."""
    codes = {each.__code__ for each in (*_DEVICE_KERNELS, *_AUTOGRAD_KERNELS)}
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def _key(device_type: str) -> str:
    if device_type not in KEYS:
        known = ", ".join(KEYS)
        raise ValueError(f"no interceptors for device type {device_type!r}, only for {known}")
    return KEYS[device_type]


def _convolution_kernel(*arguments: Any) -> torch.Tensor:
    with torch._C.DisableTorchFunction():
        if dispatch.is_traced(arguments):
            return dispatch.convolution_for_tracing(arguments)
        call = ConvolutionCall.of(arguments)
        if call.flags and dispatch.inside_native():
            return dispatch.native_convolution(call)
        return dispatch.run_convolution(call)


def _backward_kernel(*arguments: Any) -> Gradients:
    with torch._C.DisableTorchFunction():
        return dispatch.run_backward(BackwardCall.of(arguments))


def _register(key: str, convolution: Callable[..., Any], backward: Callable[..., Any]) -> None:
    if key not in _libraries:
        kernels = {"convolution": convolution, "_convolution": convolution, "convolution_backward": backward}
        _libraries[key] = kernel_library(key, kernels)


_DEVICE_KERNELS = (_convolution_kernel, _backward_kernel)
_AUTOGRAD_KERNELS = (autograd.convolution_kernel, autograd.backward_kernel)
