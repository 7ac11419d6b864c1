"""Registration of rocmprobe's kernels for PyTorch's convolution operators.

All interceptors must be added here, because PyTorch keeps only one Python kernel for an operator and dispatch
key.
"""

from __future__ import annotations

import threading
from typing import Any, Callable

import torch

from rocmprobe.bypass import autograd, dispatch
from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.bypass.dispatch import Interceptor
from rocmprobe.bypass.operators import KEYS, kernel_library, lock_across_forks

_lock = lock_across_forks()
#: Objects that keep the kernels registered, keyed by dispatch key.
_libraries: dict[str, Any] = {}
#: Kernels that were removed, but can still be running.
_removed: list[Any] = []
_NAMES = ("convolution", "_convolution", "convolution_backward")


def add_interceptor(interceptor: Interceptor, device_type: str) -> None:
    """Intercept the convolutions of ``device_type``, "cpu" or "cuda" (also for ROCm), with ``interceptor``.

    Raises:
        ValueError: if the device type is unknown, or if this interceptor was already added.
    """
    key = _key(device_type)
    with _lock:
        _register(key, _convolution_kernel, _backward_kernel)
        if interceptor.keeps_backward:
            _register("Autograd" + key, autograd.convolution_kernel, autograd.backward_kernel)
        dispatch.add(interceptor, device_type)


def remove_interceptor(interceptor: Interceptor, device_type: str) -> None:
    """Stop intercepting new calls with ``interceptor``. Calls still pass rocmprobe's kernels.

    Raises:
        ValueError: if the device type is unknown, or if the interceptor was not added.
    """
    _key(device_type)
    dispatch.remove(interceptor, device_type)


def release_kernels(device_type: str) -> None:
    """Remove the kernels that no interceptor of ``device_type`` needs. Then calls go to PyTorch directly."""
    key = _key(device_type)
    with _lock:
        left = dispatch.all_interceptors(device_type)
        unused = [] if any(each.keeps_backward for each in left) else ["Autograd" + key]
        for each in (*unused, *(() if left else (key,))):
            if each in _libraries and _can_remove(each):
                del _libraries[each]
                _forget_dispatch()


def _can_remove(key: str) -> bool:
    # PyTorch frees a removed kernel even while the kernel runs, in this thread or another. New versions of
    # torch can keep the kernel alive.
    get_kernel = getattr(torch.library, "get_kernel", None)
    if get_kernel is None:
        return threading.active_count() == 1
    _removed.extend(get_kernel(f"aten::{name}", key) for name in _NAMES)
    return True


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
        _libraries[key] = kernel_library(key, dict(zip(_NAMES, (convolution, convolution, backward))))
        _forget_dispatch()


def _forget_dispatch() -> None:
    """Make PyTorch look up again which kernel an operator calls from Python, as under ``torch.compile``."""
    for name in _NAMES:
        # torch 1 has no such cache.
        getattr(getattr(torch.ops.aten, name).default, "_dispatch_cache", {}).clear()
