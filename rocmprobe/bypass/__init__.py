"""Convolutions of PyTorch computed as matrix products, in place of MIOpen, cuDNN or oneDNN.

    import rocmprobe.bypass
    rocmprobe.bypass.install()

After this call, matrix products (rocBLAS on ROCm) and PyTorch's elementwise kernels compute all convolutions
of the process, forward and backward. This includes calls from modules, TorchScript, autocast and C++. By
default, batch norm, RNN and the fused operators of ``torch.jit.optimize_for_inference`` and ``to_mkldnn``
still run in the vendor library.

To replace only batch norm, by PyTorch's own kernels:

    rocmprobe.bypass.install(convolution="native", batch_norm="pytorch")

A call passes four layers::

    model, autograd, C++
        | aten::convolution, aten::convolution_backward
        v
    dispatcher   registration.py: rocmprobe's kernels for PyTorch's operators (autograd.py for enabled, patch)
        |        dispatch.py: the interceptors of the device, from recorder to bypass to PyTorch's own kernel
        v
    plan         interceptor.py: looks up the prepared convolution by sizes, strides, dtype and device
        |        choice/: one plan per direction, by cost model, measurement and (on a GPU) proof
        v
    algorithm    algorithms/: pointwise, im2col, slow_conv2d, depthwise, kernel-gemm, kernel-grouped
        |
        v
    kernel       torch.mm, copy_, ... or rocmprobe.kernels
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Optional, Union

import torch

from rocmprobe.bypass import kernel_modules, other_layers, registration
from rocmprobe.bypass.algorithms import ALGORITHMS, Plan
from rocmprobe.bypass.choice import plan_file
from rocmprobe.bypass.choice.choices import Explanation, explain_problem
from rocmprobe.bypass.choice.settings import algorithm_or_default, workspace_or_default
from rocmprobe.bypass.counts import counted, reset_status
from rocmprobe.bypass.interceptor import BypassInterceptor, forget_prepared
from rocmprobe.bypass.operators import lock_across_forks
from rocmprobe.bypass.other_layers import sent_to_pytorch
from rocmprobe.bypass.scoped import (
    ScopedInterceptor,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    patch_model,
    unpatch_model,
)

__all__ = [
    "ALGORITHMS", "Explanation", "Plan", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "enabled", "explain", "forget", "install", "patch", "reset_status", "status",
    "uninstall", "unpatch",
]  # fmt: skip

Device = Union[str, torch.device, None]

_lock = lock_across_forks()


@dataclass(frozen=True)
class _Request:
    """Validated arguments of :func:`install` or :func:`enabled`.

    ``kinds`` are the layers that PyTorch's own kernels compute, a subset of ``other_layers.KINDS``.
    """

    interceptor: Optional[BypassInterceptor]
    kinds: tuple[str, ...]

    def begin(self, device_type: str) -> None:
        other_layers.send_to_pytorch(self.kinds, device_type)
        if self.interceptor:
            registration.add_interceptor(self.interceptor, device_type)

    def end(self, device_type: str) -> None:
        other_layers.undo_send_to_pytorch(self.kinds, device_type)
        if self.interceptor:
            registration.remove_interceptor(self.interceptor, device_type)


_installed: dict[str, _Request] = {}


def install(
    device: Device = None,
    workspace_mb: Optional[float] = None,
    algorithm: Optional[str] = None,
    *,
    convolution: str = "bypass",
    batch_norm: str = "native",
    rnn: str = "native",
    ctc_loss: str = "native",
    fused_convolution: str = "native",
) -> None:
    """Compute the convolutions of a device type with the bypass until :func:`uninstall`.

    The call applies to the whole process. A second call for the same device type replaces the arguments of
    the first.

    Args:
        device: "cpu", "cuda" (also for ROCm devices) or a ``torch.device``, whose index is ignored. Default:
            "cuda" if PyTorch can use a GPU, otherwise "cpu".
        workspace_mb: maximum memory in MiB that one direction of one convolution allocates in addition to
            operands and results. Default: the environment variable
            ``ROCMPROBE_BYPASS_WORKSPACE_MB``, or 256 if it is not set.
        algorithm: "auto", or a key of ``ALGORITHMS`` to use wherever this algorithm applies. Default: the
            environment variable ``ROCMPROBE_BYPASS_ALGORITHM``, or "auto" if it is not set. With "auto", a
            cost model chooses, unless a measurement in the first call of a problem finds a clearly faster
            algorithm. Choices are stored on disk, see ``docs/training-with-the-bypass.md``.
        convolution: "bypass", or "native" to leave convolution unchanged.
        batch_norm: "native" to leave batch norm unchanged, or "pytorch" to use PyTorch's own kernels.
        rnn: like ``batch_norm``, for RNN, LSTM and GRU.
        ctc_loss: like ``batch_norm``, for the CTC loss.
        fused_convolution: "native", or "pytorch" to split fused operators of MIOpen and cuDNN into
            convolution and ReLU.

    Raises:
        ValueError: if an argument is invalid.
    """
    device_type = _device_type(device)
    kinds = sent_to_pytorch(convolution, batch_norm, rnn, ctc_loss, fused_convolution)
    request = _request(workspace_mb, algorithm, convolution, kinds, keeps_backward=False)
    with _lock:
        former = _installed.get(device_type)
        request.begin(device_type)
        _installed[device_type] = request
        if former is not None:
            former.end(device_type)


def uninstall(device: Device = None) -> None:
    """Undo :func:`install` for one device type, or for all device types if ``device`` is None.

    Contexts of :func:`enabled` stay active. Later backward passes use PyTorch's own kernels, even if the
    bypass computed the forward.
    """
    with _lock:
        for device_type in list(_installed) if device is None else [_device_type(device)]:
            request = _installed.pop(device_type, None)
            if request is not None:
                request.end(device_type)
                registration.release_kernels(device_type)


def _request(
    workspace_mb: Optional[float],
    algorithm: Optional[str],
    convolution: str,
    kinds: tuple[str, ...],
    keeps_backward: bool,
) -> _Request:
    workspace, named = workspace_or_default(workspace_mb), algorithm_or_default(algorithm)
    bypass = BypassInterceptor(workspace, named, keeps_backward) if convolution == "bypass" else None
    return _Request(bypass, kinds)


@contextmanager
def enabled(
    device: Device = None,
    workspace_mb: Optional[float] = None,
    algorithm: Optional[str] = None,
    *,
    convolution: str = "bypass",
    batch_norm: str = "native",
    rnn: str = "native",
    ctc_loss: str = "native",
    fused_convolution: str = "native",
) -> Iterator[None]:
    """Compute the convolutions of a device type with the bypass inside a ``with`` block.

    The arguments are those of :func:`install`. The block affects all threads. In nested blocks, the arguments
    of the innermost block apply. Without ``torch.compile``, the backward of these convolutions uses the
    bypass even after the block.
    """
    device_type = _device_type(device)
    kinds = sent_to_pytorch(convolution, batch_norm, rnn, ctc_loss, fused_convolution)
    request = _request(workspace_mb, algorithm, convolution, kinds, keeps_backward=True)
    request.begin(device_type)
    try:
        yield
    finally:
        request.end(device_type)


def patch(
    model: torch.nn.Module, workspace_mb: Optional[float] = None, algorithm: Optional[str] = None
) -> None:
    """Compute the convolutions of one model with the bypass, on every device, until :func:`unpatch`.

    The patch applies to ``model(x)`` and to calls of the model's modules, but not to ``model.forward(x)``.
    Without ``torch.compile``, the backward also uses the bypass. ``type(module)`` becomes a derived class.
    Deep copies of the model are also patched, but pickles contain the unpatched model. A second call replaces
    the arguments of the first.

    Raises:
        TypeError: if ``model`` is not a module, or contains a scripted module.
        ValueError: if the workspace or the algorithm is invalid.
    """
    patch_model(model, ScopedInterceptor(workspace_or_default(workspace_mb), algorithm_or_default(algorithm)))


def unpatch(model: torch.nn.Module) -> None:
    """Undo :func:`patch`."""
    unpatch_model(model)


def explain(
    problem: Any,
    device: Device = None,
    workspace_mb: Optional[float] = None,
    algorithm: Optional[str] = None,
) -> dict[str, Explanation]:
    """Return the algorithm that the bypass uses for each direction of a problem, and the reason.

    The keys are "fwd", "bwd-data" and "bwd-weights".

    Args:
        problem: a ``rocmprobe.model.problems.Problem``, or a mapping with the keys ``input_shape``,
            ``weight_shape``, ``stride``, ``padding``, ``dilation``, ``transposed``, ``output_padding``,
            ``groups``, ``dtype`` and ``channels_last``.
        device, workspace_mb, algorithm: as in :func:`install`.

    Raises:
        ValueError: if an argument is invalid, the device is missing, PyTorch would reject the problem, or the
            output is empty.
    """
    where = torch.device(_device_type(None) if device is None else device)
    if where.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("PyTorch has no CUDA or ROCm device here")
        where = torch.device("cuda", torch.cuda.current_device() if where.index is None else where.index)
    workspace, named = workspace_or_default(workspace_mb), algorithm_or_default(algorithm)
    return explain_problem(problem, where, workspace, named)


def status() -> dict[str, dict[str, Any]]:
    """Return the counts of the bypass since the last :func:`reset_status`, for all devices and threads.

    - ``calls``: number of directions that each algorithm computed (a backward has up to two directions)
    - ``native``: number of convolution calls that were left to PyTorch, by reason
    - ``pytorch``: number of forward calls that PyTorch's own kernels computed, by layer
    - ``own_kernels``: "used", or the reason why rocmprobe's own kernels are not used. The keys are the GPUs
      and dtypes checked so far, e.g. "cuda:0 float32".
    - ``inexact``: algorithms that are not used because their results on a GPU were wrong, with the problem
    """
    return {**counted(), "own_kernels": kernel_modules.state(), "inexact": plan_file.inexact()}


def forget() -> None:
    """Forget the algorithms chosen in this process, and whether rocmprobe's own kernels can be used.

    Keep the plan file.
    """
    plan_file.forget()
    kernel_modules.forget()
    forget_prepared()


def _device_type(device: Device) -> str:
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device).type
