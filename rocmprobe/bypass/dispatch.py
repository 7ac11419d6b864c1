"""Where a convolution goes: through the interceptors of its device type, and at last to PyTorch's own kernel.

A call goes from the highest rank to the lowest. The interceptors of a device type are process-wide: backward
threads and DataParallel replicas meet them, too. :mod:`rocmprobe.bypass.registration` brings the calls here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Callable

import torch

from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.bypass.operators import KEYS, lock_across_forks

RANK_FAULTS = 100
RANK_BYPASS = 200
RANK_RECORDER = 300

#: Arguments of aten::convolution; aten::_convolution has four more.
_UNRECORDED = 9


class Interceptor:
    """Something between a caller and PyTorch's convolution kernels. Subclass and override what you need.

    Attributes:
        name: of several with one name on a device type, only the one nearest to the caller acts.
        rank: those of a higher rank are nearer to the caller (``RANK_RECORDER``, ``RANK_BYPASS``,
            ``RANK_FAULTS``); among equal ranks the one added last.
        keeps_backward: the backward and double backward of a convolution that met this one meet it too,
            even when it has been removed by then.
    """

    name: str = "layer"
    rank: int = RANK_FAULTS
    keeps_backward: bool = False

    def acts(self) -> bool:
        """Whether calls that begin now, in this thread, are to meet it."""
        return True

    def convolution(
        self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], torch.Tensor]
    ) -> torch.Tensor:
        """The output of ``call``. ``proceed(call)`` is the next one's answer, at the bottom PyTorch's."""
        return proceed(call)

    def convolution_backward(
        self, call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        """The gradients of input, weight and bias; None where ``call.output_mask`` does not ask."""
        return proceed(call)


_lock = lock_across_forks()
_present: dict[str, tuple[Interceptor, ...]] = dict.fromkeys(KEYS, ())
_local = threading.local()


def add(interceptor: Interceptor, device_type: str) -> None:
    """Put ``interceptor`` before the convolutions of ``device_type``, a key of ``operators.KEYS``.

    Raises:
        ValueError: when this very one is there already.
    """
    with _lock:
        if any(interceptor is other for other in _present[device_type]):
            raise ValueError(f"interceptor {interceptor.name!r} is on {device_type} already")
        # A stable sort keeps the order of adding within a rank.
        ordered = sorted((*_present[device_type], interceptor), key=lambda each: each.rank)
        _present[device_type] = tuple(ordered)


def remove(interceptor: Interceptor, device_type: str) -> None:
    """Take ``interceptor`` away again. Calls already inside it run to their end.

    Raises:
        ValueError: when it is not there.
    """
    with _lock:
        if not any(interceptor is other for other in _present[device_type]):
            raise ValueError(f"interceptor {interceptor.name!r} is not on {device_type}")
        left = tuple(other for other in _present[device_type] if other is not interceptor)
        _present[device_type] = left


def interceptors(device_type: str) -> tuple[Interceptor, ...]:
    """The acting ones of ``device_type``, from the bottom to the top."""
    return _acting(_present[device_type])


def keeping_interceptors(device_type: str) -> tuple[Interceptor, ...]:
    """The acting ones that the backward of what they see comes back to."""
    return tuple(each for each in interceptors(device_type) if each.keeps_backward)


def covers(device_type: str, held: Sequence[Interceptor]) -> bool:
    """Whether each one in ``held`` is at work on ``device_type``."""
    present = interceptors(device_type)
    return all(each in present for each in held)


def run_convolution(call: ConvolutionCall, held: Sequence[Interceptor] = ()) -> torch.Tensor:
    """Take ``call`` through the interceptors of its device; those in ``held`` replace any of their names."""

    def enter(stack: tuple[Interceptor, ...], call: ConvolutionCall) -> torch.Tensor:
        if not stack:
            return native_convolution(call)
        return stack[-1].convolution(call, lambda next_call: enter(stack[:-1], next_call))

    return enter(_stack(call.input.device.type, held), call)


def run_backward(call: BackwardCall, held: Sequence[Interceptor] = ()) -> Gradients:
    """As :func:`run_convolution`, for the gradients."""

    def enter(stack: tuple[Interceptor, ...], call: BackwardCall) -> Gradients:
        if not stack:
            return native_backward(call)
        return stack[-1].convolution_backward(call, lambda next_call: enter(stack[:-1], next_call))

    return enter(_stack(call.input.device.type, held), call)


def _acting(stack: Sequence[Interceptor]) -> tuple[Interceptor, ...]:
    acting = [each for each in stack if each.acts()]
    last = {each.name: each for each in acting}
    return tuple(each for each in acting if last[each.name] is each)


def _stack(device_type: str, held: Sequence[Interceptor]) -> tuple[Interceptor, ...]:
    present = _acting(_present.get(device_type, ()))
    if all(each in present for each in held):
        return present
    names = {each.name for each in held}
    others = [each for each in present if each.name not in names]
    return tuple(sorted((*others, *held), key=lambda each: each.rank))


def is_traced(arguments: Sequence[Any]) -> bool:
    """Whether ``torch.jit.trace`` has yet to record this convolution.

    It records ``aten::_convolution`` but not ``aten::convolution``; until it does, it records whatever is
    called from Python. While a recorded operator runs, it is off.
    """
    return len(arguments) == _UNRECORDED and bool(torch._C._is_tracing())


def let_trace(arguments: Sequence[Any]) -> torch.Tensor:
    """``aten::convolution`` as PyTorch does it, by ``aten::_convolution``, which comes back here."""
    result: torch.Tensor = torch.ops.aten.convolution.default._op_dk(
        torch._C.DispatchKey.CompositeExplicitAutograd, *arguments
    )
    return result


def inside_native() -> bool:
    """Whether this thread is within PyTorch's own kernel of a convolution that has been through here."""
    return getattr(_local, "inside_native", False)


def native_convolution(call: ConvolutionCall) -> torch.Tensor:
    operator = torch.ops.aten._convolution if call.flags else torch.ops.aten.convolution
    # PyTorch's kernel of aten::convolution calls aten::_convolution through the dispatcher, so our kernel
    # for the latter has to know that this convolution has been through the interceptors.
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
