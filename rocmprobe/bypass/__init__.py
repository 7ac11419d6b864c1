"""Convolutions of PyTorch as matrix products, in place of MIOpen, cuDNN or oneDNN.

    import rocmprobe.bypass
    rocmprobe.bypass.install()

After this call, GEMMs (rocBLAS on ROCm) and PyTorch's elementwise kernels compute every convolution of the
process on that device, forward and backward. All callers are covered: modules, functional calls, TorchScript,
autocast, C++. Batch norm, RNN and the other users of the vendor library stay unchanged unless they are named.
Fused operators that PyTorch does not dispatch as convolutions (``torch.jit.optimize_for_inference``,
``to_mkldnn``) also stay unchanged. The command ``rocmprobe exec`` switches some of them off.

Other layers can use PyTorch's own kernels while convolution stays with the vendor library. For batch norm:

    rocmprobe.bypass.install(convolution="native", batch_norm="pytorch")
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Optional, Union

import torch

from rocmprobe.bypass import other_layers, own_kernels, registration
from rocmprobe.bypass.algorithms import ALGORITHMS, Plan
from rocmprobe.bypass.choice import plan_file
from rocmprobe.bypass.choice.choices import Explanation, explain_problem
from rocmprobe.bypass.choice.plan import algorithm_or_default, plan, workspace_or_default
from rocmprobe.bypass.convolution import BypassInterceptor, forget_prepared
from rocmprobe.bypass.counts import counted, reset_status
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
    "conv_transpose3d", "enabled", "explain", "forget", "install", "patch", "plan", "reset_status", "status",
    "uninstall", "unpatch",
]  # fmt: skip

Device = Union[str, torch.device, None]

_lock = lock_across_forks()


@dataclass(frozen=True)
class _Request:
    """Arguments of :func:`install` or :func:`enabled`.

    If ``interceptor`` is None, convolution stays unchanged. PyTorch's own kernels compute the layers of
    ``kinds``, a subset of ``other_layers.KINDS``.
    """

    interceptor: Optional[BypassInterceptor]
    kinds: tuple[str, ...]

    def begin(self, device_type: str) -> None:
        other_layers.send_to_pytorch(self.kinds, device_type)
        if self.interceptor:
            registration.add_interceptor(self.interceptor, device_type)

    def end(self, device_type: str) -> None:
        other_layers.leave_as_it_is(self.kinds, device_type)
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
    """Replace the convolutions of a device type for the whole process until :func:`uninstall`.

    The keywords can also replace the kernels of other layers. Installing again replaces the former
    installation, so the last arguments apply.

    Args:
        device: "cpu", "cuda" (also for ROCm devices) or a ``torch.device``, whose index is ignored.
            None means "cuda" if PyTorch can use such a device, otherwise "cpu".
        workspace_mb: cap, in MiB, on the memory that one direction of one convolution allocates in addition
            to operands and results, see :func:`plan`. None means the value of the variable
            ``ROCMPROBE_BYPASS_WORKSPACE_MB``, or 256 if the variable is not set.
        algorithm: "auto" for the fastest algorithm, measured in the first call of a problem. The name of an
            algorithm (see ``ALGORITHMS``) selects this algorithm for every problem and direction to which it
            applies. None means the value of the variable ``ROCMPROBE_BYPASS_ALGORITHM``, or "auto" if the
            variable is not set. Measurements are kept for later processes, see
            ``docs/training-with-the-bypass.md``.
        convolution: "bypass", or "native" for PyTorch's choice, as without the bypass.
        batch_norm: "native", or "pytorch" for PyTorch's own kernels in place of any library. The same words
            apply to ``rnn`` (RNN, LSTM and GRU), ``ctc_loss``, and ``fused_convolution`` (convolution and
            ReLU in one operator of MIOpen or cuDNN, which then become several operators).

    Raises:
        ValueError: for another device type, a workspace that is not positive, an unknown algorithm, or
            another word for a layer.
    """
    device_type = _device_type(device)
    kinds = sent_to_pytorch(convolution, batch_norm, rnn, ctc_loss, fused_convolution)
    request = _request(workspace_mb, algorithm, convolution, kinds)
    with _lock:
        former = _installed.get(device_type)
        request.begin(device_type)
        _installed[device_type] = request
        if former is not None:
            former.end(device_type)


def uninstall(device: Device = None) -> None:
    """Undo :func:`install`, for one device type, or for all if ``device`` is None.

    Do nothing if nothing is installed. Contexts of :func:`enabled` stay active. If the bypass computed a
    forward before, the bypass still computes the backward.
    """
    with _lock:
        for device_type in list(_installed) if device is None else [_device_type(device)]:
            request = _installed.pop(device_type, None)
            if request is not None:
                request.end(device_type)


def _request(
    workspace_mb: Optional[float], algorithm: Optional[str], convolution: str, kinds: tuple[str, ...]
) -> _Request:
    workspace, named = workspace_or_default(workspace_mb), algorithm_or_default(algorithm)
    return _Request(BypassInterceptor(workspace, named) if convolution == "bypass" else None, kinds)


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
    """Replace the convolutions of a device type inside of a ``with`` block.

    The arguments are those of :func:`install`. The block affects all threads, because backward and
    DataParallel use their own threads. Contexts nest, and the context entered last sets the workspace. The
    bypass also computes the backward and double backward of a forward inside of the block, wherever and
    whenever they run. The exception is ``torch.compile``, which compiles the backward separately: the bypass
    computes such a backward only inside of the block.
    """
    device_type = _device_type(device)
    kinds = sent_to_pytorch(convolution, batch_norm, rnn, ctc_loss, fused_convolution)
    request = _request(workspace_mb, algorithm, convolution, kinds)
    request.begin(device_type)
    try:
        yield
    finally:
        request.end(device_type)


def patch(
    model: torch.nn.Module, workspace_mb: Optional[float] = None, algorithm: Optional[str] = None
) -> None:
    """Make the convolutions of one model go through the bypass, on every device, until :func:`unpatch`.

    The patch covers calls of ``model`` and of its modules, including functional calls in a ``forward``. The
    patch does not cover ``model.forward(x)`` or convolutions outside of the model. The bypass also computes
    the backward of a patched forward, with the exception named in :func:`enabled`. Hooks, parametrisations,
    state-dict keys and ``isinstance`` stay unchanged. ``type(module)`` becomes a derived class. Deep copies
    of the model are patched, too. A pickle is not patched. Patching again replaces the arguments.

    Raises:
        TypeError: if ``model`` is not a module, or contains a scripted module, which runs outside of Python.
        ValueError: as in :func:`install`.
    """
    patch_model(model, ScopedInterceptor(workspace_or_default(workspace_mb), algorithm_or_default(algorithm)))


def unpatch(model: torch.nn.Module) -> None:
    """Undo :func:`patch`. Do nothing if the model is not patched."""
    unpatch_model(model)


def explain(
    problem: Any,
    device: Device = None,
    workspace_mb: Optional[float] = None,
    algorithm: Optional[str] = None,
) -> dict[str, Explanation]:
    """Return the algorithm of each direction ("fwd", "bwd-data", "bwd-weights") of a problem, with reasons.

    Args:
        problem: a ``rocmprobe.model.problems.Problem``, or a mapping with its ``input_shape``,
            ``weight_shape``, ``stride``, ``padding``, ``dilation``, ``transposed``, ``output_padding``,
            ``groups``, ``dtype`` and ``channels_last``.
        device, workspace_mb, algorithm: as in :func:`install`.

    Raises:
        ValueError: as in :func:`install`, for a missing device or an unknown dtype, if PyTorch would refuse
            the problem, or if there is nothing to compute.
    """
    where = torch.device(_device_type(None) if device is None else device)
    if where.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("PyTorch has no CUDA or ROCm device here")
        where = torch.device("cuda", torch.cuda.current_device() if where.index is None else where.index)
    workspace, named = workspace_or_default(workspace_mb), algorithm_or_default(algorithm)
    return explain_problem(problem, where, workspace, named)


def status() -> dict[str, dict[str, Any]]:
    """Return the counts since the last :func:`reset_status`, for all devices and threads.

    ``calls`` maps an algorithm to the number of directions it computed. A backward has up to two directions:
    bwd-data and bwd-weights. A bias gradient is a plain sum and not counted. ``native`` maps a reason to the
    number of convolution calls that were left to PyTorch for this reason. ``pytorch`` maps a kind of other
    layers, such as "batch_norm", to the number of forward calls that PyTorch's own kernels computed.
    ``own_kernels`` maps each GPU and dtype of the calls, such as "cuda:0 float32", to "used" if rocmprobe's
    own kernels may be chosen, otherwise to the reason against them.
    """
    return {**counted(), "own_kernels": own_kernels.state()}


def forget() -> None:
    """Forget the algorithms that this process measured or read from the plan file."""
    plan_file.forget()
    own_kernels.forget()
    forget_prepared()


def _device_type(device: Device) -> str:
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device).type
