"""Interceptors between the caller of a convolution and PyTorch's own kernel.

A call passes the interceptors of its device type from the highest rank to the lowest. Interceptors apply to
all threads of the process.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, Callable

import torch

from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.bypass.operators import KEYS, lock_across_forks

#: Number of arguments of aten::convolution. aten::_convolution has four more.
_UNRECORDED = 9


class Interceptor:
    """Base class of interceptors, which receive each convolution before PyTorch's own kernel.

    Attributes:
        name: name of the interceptor. Among active interceptors with the same name, only the one nearest to
            the caller is used.
        rank: a higher rank is nearer to the caller. Among equal ranks, the interceptor added last is nearest.
            The bypass has the ranks 1 and 2.
        keeps_backward: True if the interceptor, even after its removal, receives the backward of each
            convolution that it intercepted.
    """

    name: str = "layer"
    rank: int = 0
    keeps_backward: bool = False

    def acts(self) -> bool:
        """Return True if the interceptor is active in this thread."""
        return True

    def convolution(
        self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], torch.Tensor]
    ) -> torch.Tensor:
        """Return the output of ``call``.

        ``proceed(call)`` passes the call to the next interceptor, or to PyTorch's own kernel.
        """
        return proceed(call)

    def convolution_backward(
        self, call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        """Return the gradients of input, weight and bias. A gradient that was not requested is None."""
        return proceed(call)


_lock = lock_across_forks()
_present: dict[str, tuple[Interceptor, ...]] = dict.fromkeys(KEYS, ())
_local = threading.local()


class _Native:
    ran = False


_native = _Native()


def add(interceptor: Interceptor, device_type: str) -> None:
    """Intercept the convolutions of ``device_type`` ("cpu" or "cuda") with ``interceptor``.

    Raises:
        ValueError: if this interceptor was already added.
    """
    with _lock:
        if any(interceptor is other for other in _present[device_type]):
            raise ValueError(f"interceptor {interceptor.name!r} is on {device_type} already")
        # The sort is stable, so interceptors of the same rank stay in the order in which they were added.
        ordered = sorted((*_present[device_type], interceptor), key=lambda each: each.rank)
        _present[device_type] = tuple(ordered)


def remove(interceptor: Interceptor, device_type: str) -> None:
    """Stop intercepting new calls with ``interceptor``.

    Raises:
        ValueError: if the interceptor was not added.
    """
    with _lock:
        if not any(interceptor is other for other in _present[device_type]):
            raise ValueError(f"interceptor {interceptor.name!r} is not on {device_type}")
        left = tuple(other for other in _present[device_type] if other is not interceptor)
        _present[device_type] = left


def interceptors(device_type: str) -> tuple[Interceptor, ...]:
    """Return the active interceptors of ``device_type``, lowest rank first."""
    return _acting(_present[device_type])


def all_interceptors(device_type: str) -> tuple[Interceptor, ...]:
    """Return all interceptors of ``device_type``, active or not, lowest rank first."""
    return _present[device_type]


def keeping_interceptors(device_type: str) -> tuple[Interceptor, ...]:
    """Return the active interceptors whose ``keeps_backward`` is True."""
    return tuple(each for each in interceptors(device_type) if each.keeps_backward)


def all_active(device_type: str, held: Sequence[Interceptor]) -> bool:
    """Return True if all interceptors in ``held`` are active on ``device_type``."""
    present = interceptors(device_type)
    return all(each in present for each in held)


def run_convolution(call: ConvolutionCall, held: Sequence[Interceptor] = ()) -> torch.Tensor:
    """Compute ``call`` through the active interceptors of its device.

    Interceptors in ``held`` are used even if they were removed. They replace active interceptors of the same
    name.
    """

    return _convolve(_stack(call.input.device.type, held), call)


def _convolve(stack: tuple[Interceptor, ...], call: ConvolutionCall) -> torch.Tensor:
    if not stack:
        return native_convolution(call)
    return stack[-1].convolution(call, partial(_convolve, stack[:-1]))


def run_backward(call: BackwardCall, held: Sequence[Interceptor] = ()) -> Gradients:
    """Compute the gradients of ``call`` through interceptors, as in :func:`run_convolution`."""

    return _differentiate(_stack(call.input.device.type, held), call)


def _differentiate(stack: tuple[Interceptor, ...], call: BackwardCall) -> Gradients:
    if not stack:
        return native_backward(call)
    return stack[-1].convolution_backward(call, partial(_differentiate, stack[:-1]))


def _acting(stack: Sequence[Interceptor]) -> tuple[Interceptor, ...]:
    acting = tuple(each for each in stack if each.acts())
    if len(acting) < 2:
        return acting
    last = {each.name: each for each in acting}
    return tuple(each for each in acting if last[each.name] is each)


def _stack(device_type: str, held: Sequence[Interceptor]) -> tuple[Interceptor, ...]:
    present = _acting(_present.get(device_type, ()))
    if not held or all(each in present for each in held):
        return present
    names = {each.name for each in held}
    others = [each for each in present if each.name not in names]
    return tuple(sorted((*others, *held), key=lambda each: each.rank))


def is_traced(arguments: Sequence[Any]) -> bool:
    """Return True if ``torch.jit.trace`` is tracing a call of ``aten::convolution`` with these arguments."""
    return len(arguments) == _UNRECORDED and bool(torch._C._is_tracing())


def convolution_for_tracing(arguments: Sequence[Any]) -> torch.Tensor:
    """Compute ``aten::convolution`` by a call of ``aten::_convolution``, which tracing can record."""
    result: torch.Tensor = torch.ops.aten.convolution.default._op_dk(
        torch._C.DispatchKey.CompositeExplicitAutograd, *arguments
    )
    return result


def inside_native() -> bool:
    """Return True if this thread is inside :func:`native_convolution`."""
    return getattr(_local, "inside_native", False)


def ran_natively() -> bool:
    """Return True if PyTorch's own kernel computed an intercepted convolution in this process."""
    return _native.ran


def native_convolution(call: ConvolutionCall) -> torch.Tensor:
    _native.ran = True
    operator = torch.ops.aten._convolution if call.flags else torch.ops.aten.convolution
    # PyTorch's kernel of aten::convolution calls aten::_convolution through the dispatcher, so our kernel for
    # aten::_convolution must know that this convolution was already intercepted.
    outer = inside_native()
    _local.inside_native = True
    try:
        result: torch.Tensor = operator.default._op_dk(
            torch._C.DispatchKey.CompositeExplicitAutograd, *call.arguments()
        )
    finally:
        _local.inside_native = outer
    return result


def native_backward(call: BackwardCall) -> Gradients:
    gradients: Gradients = torch.ops.aten.convolution_backward.default._op_dk(
        torch._C.DispatchKey.CompositeExplicitAutograd, *call.arguments()
    )
    return gradients
