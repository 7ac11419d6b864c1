"""Layers that PyTorch's own kernels can compute in place of MIOpen, cuDNN or oneDNN.

At the first request for a layer, a Python kernel replaces the layer's operator in PyTorch. The Python kernel
stays registered until the end of the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Callable, Optional

import torch

from rocmprobe.bypass.counts import count_pytorch
from rocmprobe.bypass.operators import KEYS, kernel_library, lock_across_forks

#: Layers that PyTorch's own kernels can compute, as named in :func:`rocmprobe.bypass.install`.
KINDS = ("batch_norm", "rnn", "ctc_loss", "fused_convolution")
NATIVE = "native"

_BATCH_NORM = "_batch_norm_impl_index"
#: Index that the operator returns to PyTorch, so that native_batch_norm computes the backward pass.
_BY_PYTORCH = 0
_RNN = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_FUSED = ("convolution_relu", "convolution_add_relu")
_LIBRARIES = ("miopen", "cudnn")

_lock = lock_across_forks()
_asked: dict[str, Counter[str]] = {device_type: Counter() for device_type in KEYS}
#: Objects that keep the kernels registered, keyed by device type and kind.
_libraries: dict[tuple[str, str], list[Any]] = {}


def sent_to_pytorch(convolution: str, *others: str) -> tuple[str, ...]:
    """Return the layers in ``KINDS`` whose value in ``others`` is "pytorch".

    ``others`` has one value ("pytorch" or "native") for each layer, in the order of ``KINDS``.

    Raises:
        ValueError: if a value is unknown, or if ``convolution`` is not "bypass" or "native".
    """
    wanted = (("convolution", convolution, "bypass"), *zip(KINDS, others, ("pytorch",) * len(KINDS)))
    for kind, word, other in wanted:
        if word not in (NATIVE, other):
            raise ValueError(f"{kind} is {NATIVE!r} or {other!r}, not {word!r}")
    return tuple(kind for kind, word in zip(KINDS, others) if word != NATIVE)


def send_to_pytorch(kinds: Sequence[str], device_type: str) -> None:
    """Make PyTorch's own kernels compute the layers ``kinds`` on ``device_type``.

    Call :func:`undo_send_to_pytorch` once for each call of this function.

    Raises:
        ValueError: if the device type is not "cpu" or "cuda".
    """
    if device_type not in KEYS:
        raise ValueError(f"device type {device_type!r} is not supported; use one of {', '.join(KEYS)}")
    with _lock:
        for kind in kinds:
            if (device_type, kind) not in _libraries:
                _libraries[device_type, kind] = _registered(kind, KEYS[device_type])
        _asked[device_type].update(kinds)


def undo_send_to_pytorch(kinds: Sequence[str], device_type: str) -> None:
    """Undo one call of :func:`send_to_pytorch`."""
    with _lock:
        _asked[device_type].subtract(kinds)


def by_pytorch(kind: str, device_type: str) -> bool:
    """Return True if :func:`send_to_pytorch` is active for ``kind`` on ``device_type``."""
    return device_type in _asked and _asked[device_type][kind] > 0


class _Switch:
    """Process-wide switch of a vendor library, off while any thread is inside :meth:`off`."""

    def __init__(self, read: Callable[[], bool], write: Callable[[bool], None]) -> None:
        self._read, self._write = read, write
        self._lock = lock_across_forks()
        self._inside = 0
        self._before = True

    @contextmanager
    def off(self) -> Iterator[None]:
        with self._lock:
            if not self._inside:
                self._before = self._read()
                self._write(False)
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    # The last thread that leaves the ``with`` block restores the switch.
                    self._write(self._before)


_SWITCHES = {
    "cuda": _Switch(torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled),
    "cpu": _Switch(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
}


def _composite(operator: Any, arguments: Sequence[Any]) -> Any:
    return operator._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *arguments)


def _batch_norm_kernel(operator: Any) -> Callable[..., Any]:
    by_switch = _switched_kernel(operator, "batch_norm")

    def kernel(*arguments: Any) -> Any:
        # The operator calls MIOpen even if its argument cudnn_enabled is False (torch 2.6). Switching MIOpen
        # off would also affect convolutions in other threads. So call native_batch_norm, which never calls
        # MIOpen.
        if not by_pytorch("batch_norm", arguments[0].device.type) or not _can_call_native(*arguments):
            return by_switch(*arguments)
        with torch._C.DisableTorchFunction():
            count_pytorch("batch_norm")
            reserve = arguments[0].new_empty(0, dtype=torch.uint8)
            return (*torch.native_batch_norm(*arguments[:-1]), reserve, _BY_PYTORCH)

    return kernel


def _can_call_native(
    input: torch.Tensor, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *_: Any
) -> bool:
    """Return True if the arguments are valid for ``native_batch_norm``."""
    # ``native_batch_norm`` does not check the sizes of its arguments.
    of_channels = [each for each in (weight, bias, mean, variance) if each is not None]
    fits = input.dim() > 1 and all(each.numel() == input.shape[1] for each in of_channels)
    known = training or (mean is not None and variance is not None)
    return fits and known and input.numel() > 0


def _switched_kernel(operator: Any, kind: str) -> Callable[..., Any]:
    def kernel(*arguments: Any) -> Any:
        with torch._C.DisableTorchFunction():
            device_type = arguments[0].device.type
            if not by_pytorch(kind, device_type):
                return _composite(operator, arguments)
            count_pytorch(kind)
            with _SWITCHES[device_type].off():
                return _composite(operator, arguments)

    return kernel


def _relu_kernel(
    input: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor], *settings: Any
) -> torch.Tensor:
    with torch._C.DisableTorchFunction():
        _count_fused(input)
        return torch.relu_(_convolved(input, weight, bias, settings))


def _add_relu_kernel(
    input: torch.Tensor, weight: torch.Tensor, summand: torch.Tensor, alpha: Any,
    bias: Optional[torch.Tensor], *settings: Any,
) -> torch.Tensor:  # fmt: skip
    with torch._C.DisableTorchFunction():
        _count_fused(input)
        output = _convolved(input, weight, bias, settings)
        return torch.relu_(output.add_(summand, alpha=1.0 if alpha is None else alpha))


def _convolved(
    input: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor], settings: Sequence[Any]
) -> torch.Tensor:
    stride, padding, dilation, groups = settings
    zeros = [0] * (weight.dim() - 2)
    return torch.convolution(input, weight, bias, stride, padding, dilation, False, zeros, groups)


def _count_fused(input: torch.Tensor) -> None:
    if by_pytorch("fused_convolution", input.device.type):
        count_pytorch("fused_convolution")


def _registered(kind: str, key: str) -> list[Any]:
    """Register the kernels for ``kind``, and return the objects that keep them registered."""
    aten = torch.ops.aten
    if kind == "fused_convolution":
        # After this registration, PyTorch's own kernels for these operators cannot be called. So rocmprobe's
        # kernels compute all later calls, even after ``undo_send_to_pytorch``.
        fused: dict[str, Callable[..., Any]] = dict(zip(_FUSED, (_relu_kernel, _add_relu_kernel)))
        return [kernel_library(key, {f"{name}_{each}": fused[each] for name in _LIBRARIES for each in fused})]
    if kind == "batch_norm":
        kernels = {_BATCH_NORM: _batch_norm_kernel(getattr(aten, _BATCH_NORM).default)}
    else:
        kernels = {
            f"{name}.{overload}": _switched_kernel(getattr(getattr(aten, name), overload), kind)
            for name in (_RNN if kind == "rnn" else (kind,))
            for overload in getattr(aten, name).overloads()
        }
    # Inference mode skips autograd, so also register the kernels under ``key``.
    return [kernel_library(each, kernels) for each in (key, "Autograd" + key)]
