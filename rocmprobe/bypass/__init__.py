"""Convolutions of PyTorch as matrix products, in place of MIOpen, cuDNN or oneDNN; and other layers by
PyTorch's own kernels, where only convolution is to stay with the vendor library.

    import rocmprobe.bypass
    rocmprobe.bypass.install()

From then on every convolution of the process on that device, forward and backward, is computed by GEMMs
(rocBLAS on ROCm) and PyTorch's elementwise kernels, whoever calls it: modules, functional calls, TorchScript,
autocast, C++. Batch norm, RNN and the other users of the vendor library are untouched unless they are named,
and so are fused operators that are not a convolution to PyTorch (``torch.jit.optimize_for_inference``,
``to_mkldnn``), some of which the command ``rocmprobe exec`` switches off.

    rocmprobe.bypass.install(convolution="native", batch_norm="pytorch")

leaves convolution with the vendor library and takes batch norm out of it.
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
    """The arguments of :func:`install` or :func:`enabled`: ``interceptor`` None leaves convolution alone,
    ``kinds`` are those of ``other_layers.KINDS`` that PyTorch's own kernels are to compute."""

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
    """Replace the convolutions of a device type for the whole process until :func:`uninstall`, or, as the
    keywords say, the kernels of other layers.

    Installing again replaces the former installation, so the last arguments hold.

    Args:
        device: "cpu", "cuda" (ROCm devices too) or a ``torch.device``, whose index does not matter.
            None is "cuda" where PyTorch can use such a device, otherwise "cpu".
        workspace_mb: the cap, in MiB, on what one direction of one convolution allocates above its
            operands and results; see :func:`plan`. None is the variable ``ROCMPROBE_BYPASS_WORKSPACE_MB``,
            or 256.
        algorithm: "auto", the quickest, measured in the first call of a problem; or the name of one (see
            ``ALGORITHMS``), taken for every problem and direction that it applies to. None is the variable
            ``ROCMPROBE_BYPASS_ALGORITHM``, or "auto". What was measured is kept for later processes; see
            ``docs/training-with-the-bypass.md``.
        convolution: "bypass", or "native": PyTorch's choice, as without the bypass.
        batch_norm: "native", or "pytorch": by PyTorch's own kernels, whatever library would be taken. So are
            ``rnn`` (RNN, LSTM and GRU), ``ctc_loss``, and ``fused_convolution`` (convolution and ReLU in one
            operator of MIOpen's or cuDNN's, which are then several operators).

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
    """Undo :func:`install`, for one device type or with None for all; without an installation do nothing.

    Contexts of :func:`enabled` stay in force. So does the backward of every graph that was built before:
    it runs as its forward did.
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
    """Replace the convolutions of a device type inside of a ``with`` block; arguments as :func:`install`.

    The block concerns all threads, since backward and DataParallel have threads of their own. Contexts
    nest, and the one entered last sets the workspace. The backward and double backward of a forward
    inside of the block are computed by the bypass too, wherever and whenever they run; only code from
    ``torch.compile`` has its backward compiled apart, which the bypass computes as long as the block lasts.
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
    """Let the convolutions of one model go through the bypass, on every device, until :func:`unpatch`.

    What runs inside of a call of ``model`` or of one of its modules is meant, functional calls in a
    ``forward`` too; ``model.forward(x)`` and what is computed elsewhere is not. The backward is tied to the
    forward as in :func:`enabled`. Hooks, parametrisations, state-dict keys and ``isinstance`` stay as they
    are; ``type(module)`` becomes a derived class. Deep copies of the model are patched as well; a pickle is
    not. Patching again replaces the arguments.

    Raises:
        TypeError: for something that is no module, or has a scripted one in it, which runs outside of Python.
        ValueError: as :func:`install`.
    """
    patch_model(model, ScopedInterceptor(workspace_or_default(workspace_mb), algorithm_or_default(algorithm)))


def unpatch(model: torch.nn.Module) -> None:
    """Undo :func:`patch`; a model that is not patched is left alone."""
    unpatch_model(model)


def explain(
    problem: Any,
    device: Device = None,
    workspace_mb: Optional[float] = None,
    algorithm: Optional[str] = None,
) -> dict[str, Explanation]:
    """Which algorithm each direction ("fwd", "bwd-data", "bwd-weights") of a problem gets, and why.

    Args:
        problem: a ``rocmprobe.model.problems.Problem``, or a mapping with its ``input_shape``,
            ``weight_shape``, ``stride``, ``padding``, ``dilation``, ``transposed``, ``output_padding``,
            ``groups``, ``dtype`` and ``channels_last``.
        device, workspace_mb, algorithm: as :func:`install`.

    Raises:
        ValueError: as :func:`install`, for a device that is not there or an unknown dtype; when PyTorch
            would refuse the problem; when there is nothing to compute.
    """
    where = torch.device(_device_type(None) if device is None else device)
    if where.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("PyTorch has no CUDA or ROCm device here")
        where = torch.device("cuda", torch.cuda.current_device() if where.index is None else where.index)
    workspace, named = workspace_or_default(workspace_mb), algorithm_or_default(algorithm)
    return explain_problem(problem, where, workspace, named)


def status() -> dict[str, dict[str, Any]]:
    """What was computed since the last :func:`reset_status`, on all devices and threads.

    ``calls`` maps an algorithm to the number of directions it computed (a backward has up to two, bwd-data
    and bwd-weights; a bias gradient is a plain sum and not counted). ``native`` maps a reason to the number
    of convolution calls that were left to PyTorch for it. ``pytorch`` maps a kind of other layers, such as
    "batch_norm", to the number of its forward calls that were kept from the vendor library. ``own_kernels``
    maps each GPU and dtype that was met, such as "cuda:0 float32", to "used" where kernels of our own may be
    taken, otherwise to why not.
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
