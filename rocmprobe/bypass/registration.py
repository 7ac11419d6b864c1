"""Registration of rocmprobe's kernels for PyTorch's convolution operators.

All interceptors must be added here, because PyTorch keeps only one Python kernel for an operator and dispatch
key.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

from rocmprobe.bypass import autograd, dispatch
from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.bypass.dispatch import Interceptor
from rocmprobe.bypass.operators import KEYS, kernel_library, lock_across_forks

_lock = lock_across_forks()
#: Objects that keep the kernels registered, keyed by device type. They are never freed, because PyTorch would
#: free a kernel even while another thread is calling the kernel.
_libraries: dict[str, list[Any]] = {}


def add_interceptor(interceptor: Interceptor, device_type: str) -> None:
    """Intercept the convolutions of ``device_type``, "cpu" or "cuda" (also for ROCm), with ``interceptor``.

    Raises:
        ValueError: if the device type is unknown, or if this interceptor was already added.
    """
    with _lock:
        if device_type not in _libraries:
            _libraries[device_type] = _registered(_key(device_type))
    dispatch.add(interceptor, device_type)


def remove_interceptor(interceptor: Interceptor, device_type: str) -> None:
    """Stop intercepting new calls with ``interceptor``.

    Raises:
        ValueError: if the device type is unknown, or if the interceptor was not added.
    """
    _key(device_type)
    dispatch.remove(interceptor, device_type)


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


def _registered(key: str) -> list[Any]:
    return [
        _library(key, _convolution_kernel, _backward_kernel),
        _library("Autograd" + key, autograd.convolution_kernel, autograd.backward_kernel),
    ]


def _library(key: str, convolution: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    kernels = {"convolution": convolution, "_convolution": convolution, "convolution_backward": backward}
    return kernel_library(key, kernels)
