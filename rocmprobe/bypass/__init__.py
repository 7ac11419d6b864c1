"""Convolutions of PyTorch as matrix products, in place of MIOpen, cuDNN or oneDNN.

    import rocmprobe.bypass
    rocmprobe.bypass.install()

From then on every convolution of the process on that device, forward and backward, runs as GEMMs (rocBLAS
on ROCm), whoever calls it: modules, functional calls, TorchScript, autocast, C++. Batch norm, RNN and the
other users of the vendor library are untouched, and so are fused operators that are not a convolution to
PyTorch (``torch.jit.optimize_for_inference``, ``to_mkldnn``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Union

import torch

from rocmprobe.bypass import shim
from rocmprobe.bypass.algorithms import ALGORITHMS, Plan
from rocmprobe.bypass.counts import reset_status, status
from rocmprobe.bypass.layer import BypassLayer
from rocmprobe.bypass.locks import lock_across_forks
from rocmprobe.bypass.plan import DEFAULT_WORKSPACE_MB, plan

__all__ = ["ALGORITHMS", "Plan", "enabled", "install", "plan", "reset_status", "status", "uninstall"]

Device = Union[str, torch.device, None]

_lock = lock_across_forks()
_installed: dict[str, BypassLayer] = {}


def install(
    device: Device = None, workspace_mb: float = DEFAULT_WORKSPACE_MB, algorithm: str = "auto"
) -> None:
    """Replace the convolutions of a device type for the whole process until :func:`uninstall`.

    Installing again replaces the former installation, so the last ``workspace_mb`` holds.

    Args:
        device: "cpu", "cuda" (ROCm devices too) or a ``torch.device``, whose index does not matter.
            None is "cuda" where PyTorch can use such a device, otherwise "cpu".
        workspace_mb: the cap, in MiB, on what one direction of one convolution allocates above its
            operands and results; see :func:`plan`.
        algorithm: "auto", by a cost model among those that sum plain products; or the name of one (see
            ``ALGORITHMS``), taken for every problem and direction that it applies to.

    Raises:
        ValueError: for another device type, a workspace that is not positive, or an unknown algorithm.
    """
    device_type = _device_type(device)
    layer = _layer(workspace_mb, algorithm)
    with _lock:
        former = _installed.get(device_type)
        shim.add_layer(layer, device_type)
        _installed[device_type] = layer
        if former is not None:
            shim.remove_layer(former, device_type)


def uninstall(device: Device = None) -> None:
    """Undo :func:`install`, for one device type or with None for all; without an installation do nothing.

    Contexts of :func:`enabled` stay in force. So does the backward of every graph that was built before:
    it runs as its forward did.
    """
    with _lock:
        for device_type in list(_installed) if device is None else [_device_type(device)]:
            layer = _installed.pop(device_type, None)
            if layer is not None:
                shim.remove_layer(layer, device_type)


@contextmanager
def enabled(
    device: Device = None, workspace_mb: float = DEFAULT_WORKSPACE_MB, algorithm: str = "auto"
) -> Iterator[None]:
    """Replace the convolutions of a device type inside of a ``with`` block; arguments as :func:`install`.

    The block concerns all threads, since backward and DataParallel have threads of their own. Contexts
    nest, and the one entered last sets the workspace. The backward and double backward of a forward
    inside of the block are computed by the bypass too, wherever and whenever they run; only code from
    ``torch.compile`` has its backward compiled apart, which the bypass computes as long as the block lasts.
    """
    device_type = _device_type(device)
    layer = _layer(workspace_mb, algorithm)
    shim.add_layer(layer, device_type)
    try:
        yield
    finally:
        shim.remove_layer(layer, device_type)


def _device_type(device: Device) -> str:
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device).type


def _layer(workspace_mb: float, algorithm: str) -> BypassLayer:
    if not workspace_mb > 0:
        raise ValueError(f"workspace_mb is a positive number of MiB, not {workspace_mb!r}")
    if algorithm != "auto" and algorithm not in ALGORITHMS:
        raise ValueError(f"no algorithm {algorithm!r}; there are auto, {', '.join(ALGORITHMS)}")
    return BypassLayer(workspace_mb, algorithm)
