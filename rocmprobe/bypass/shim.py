"""The one registration of PyTorch's convolution operators, and the layers on it.

PyTorch sends every convolution, whoever asks for it, to ``aten::convolution`` (traced TorchScript:
``aten::_convolution``) and every gradient to ``aten::convolution_backward``. From the first layer of a
device type on, kernels of ours stand in for these operators under the dispatch keys of that device; a
call goes through the layers from the highest rank to the lowest and at last to PyTorch's own kernel.
torch 1.13.1 refuses a second Python kernel for the same operator and key, and later versions silently
replace the first: so whoever wants to see or to replace convolutions adds a layer here.

The layers of a device type are process-wide: backward threads and DataParallel replicas meet them too.
The kernels stay to the end of the process. PyTorch frees a kernel at once when it is taken back, even one
that another thread is just entering, and nobody can know of all threads, those of autograd included. Without
a layer they hand every call, and its recording for autograd, to PyTorch's own kernels.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import Any, Callable, cast

import torch
from torch.library import Library

from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.bypass.locks import lock_across_forks
from rocmprobe.bypass.untraced import untraced

RANK_FAULTS = 100
RANK_BYPASS = 200
RANK_RECORDER = 300

_KEYS = {"cpu": "CPU", "cuda": "CUDA"}
#: Arguments of aten::convolution; aten::_convolution has four more.
_UNRECORDED = 9


class Layer:
    """Something between a caller and PyTorch's convolution kernels. Subclass and override what you need.

    Attributes:
        name: of several layers with one name on a device type, only the one nearest to the caller acts.
        rank: layers of a higher rank are nearer to the caller (``RANK_RECORDER``, ``RANK_BYPASS``,
            ``RANK_FAULTS``); among equal ranks the one added last.
        ties_backward: the backward and double backward of a convolution that met this layer meet it
            too, even when the layer has been removed by then.
    """

    name: str = "layer"
    rank: int = RANK_FAULTS
    ties_backward: bool = False

    def acts(self) -> bool:
        """Whether calls that begin now, in this thread, are to meet this layer."""
        return True

    def convolution(
        self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], torch.Tensor]
    ) -> torch.Tensor:
        """The output of ``call``. ``proceed(call)`` is the next layer's answer, at the bottom PyTorch's."""
        return proceed(call)

    def convolution_backward(
        self, call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        """The gradients of input, weight and bias; None where ``call.output_mask`` does not ask."""
        return proceed(call)


class _Device:
    """What the shim keeps for one device type."""

    def __init__(self) -> None:
        self.layers: tuple[Layer, ...] = ()
        #: What keeps the kernels registered; empty until the first layer.
        self.libraries: list[Any] = []


_lock = lock_across_forks()
_devices = {device_type: _Device() for device_type in _KEYS}
_local = threading.local()


def add_layer(layer: Layer, device_type: str) -> None:
    """Put ``layer`` on the convolutions of ``device_type`` ("cpu", "cuda"; ROCm devices are "cuda").

    Raises:
        ValueError: for another device type, or when this very layer is there already.
    """
    device = _device(device_type)
    with _lock:
        if any(layer is other for other in device.layers):
            raise ValueError(f"layer {layer.name!r} is on {device_type} already")
        if not device.libraries:
            device.libraries = _registered(_KEYS[device_type])
        # A stable sort keeps the order of adding within a rank.
        device.layers = tuple(sorted((*device.layers, layer), key=lambda each: each.rank))


def remove_layer(layer: Layer, device_type: str) -> None:
    """Take ``layer`` off again. Calls already inside it run to their end.

    Raises:
        ValueError: when the layer is not there.
    """
    device = _device(device_type)
    with _lock:
        if not any(layer is other for other in device.layers):
            raise ValueError(f"layer {layer.name!r} is not on {device_type}")
        device.layers = tuple(other for other in device.layers if other is not layer)


def layers(device_type: str) -> tuple[Layer, ...]:
    """The acting layers of ``device_type``, from the bottom to the top."""
    return _acting(_device(device_type).layers)


def tying_layers(device_type: str) -> tuple[Layer, ...]:
    """The acting layers that tie the backward of what they see to themselves."""
    return tuple(layer for layer in layers(device_type) if layer.ties_backward)


def covers(device_type: str, held: Sequence[Layer]) -> bool:
    """Whether each layer in ``held`` is at work on ``device_type``."""
    present = layers(device_type)
    return all(layer in present for layer in held)


def run_convolution(call: ConvolutionCall, held: Sequence[Layer] = ()) -> torch.Tensor:
    """Take ``call`` through the layers of its device. Those in ``held`` replace the ones of their names."""

    def enter(stack: tuple[Layer, ...], call: ConvolutionCall) -> torch.Tensor:
        if not stack:
            return _native_convolution(call)
        return stack[-1].convolution(call, lambda next_call: enter(stack[:-1], next_call))

    return enter(_stack(call.input.device.type, held), call)


def run_backward(call: BackwardCall, held: Sequence[Layer] = ()) -> Gradients:
    """As :func:`run_convolution`, for the gradients."""

    def enter(stack: tuple[Layer, ...], call: BackwardCall) -> Gradients:
        if not stack:
            return _native_backward(call)
        return stack[-1].convolution_backward(call, lambda next_call: enter(stack[:-1], next_call))

    return enter(_stack(call.input.device.type, held), call)


def _device(device_type: str) -> _Device:
    if device_type not in _devices:
        raise ValueError(f"no convolution shim for device type {device_type!r}, only for {', '.join(_KEYS)}")
    return _devices[device_type]


def _acting(stack: Sequence[Layer]) -> tuple[Layer, ...]:
    acting = [layer for layer in stack if layer.acts()]
    last = {layer.name: layer for layer in acting}
    return tuple(layer for layer in acting if last[layer.name] is layer)


def _stack(device_type: str, held: Sequence[Layer]) -> tuple[Layer, ...]:
    device = _devices.get(device_type)
    present = _acting(device.layers) if device else ()
    if all(layer in present for layer in held):
        return present
    names = {layer.name for layer in held}
    others = [layer for layer in present if layer.name not in names]
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


def _native_convolution(call: ConvolutionCall) -> torch.Tensor:
    operator = torch.ops.aten._convolution if call.flags else torch.ops.aten.convolution
    # PyTorch's kernel of aten::convolution calls aten::_convolution through the dispatcher, so our kernel
    # for the latter has to know that this convolution has been through the layers.
    outer = getattr(_local, "inside_native", False)
    _local.inside_native = True
    try:
        result: torch.Tensor = operator.default._op_dk(
            torch._C.DispatchKey.CompositeExplicitAutograd, *call.arguments()
        )
    finally:
        _local.inside_native = outer
    return result


def _native_backward(call: BackwardCall) -> Gradients:
    gradients: Gradients = torch.ops.aten.convolution_backward.default._op_dk(
        torch._C.DispatchKey.CompositeExplicitAutograd, *call.arguments()
    )
    return gradients


def _convolution_kernel(*arguments: Any) -> torch.Tensor:
    with torch._C.DisableTorchFunction():
        if is_traced(arguments):
            return let_trace(arguments)
        call = ConvolutionCall.of(arguments)
        if call.flags and getattr(_local, "inside_native", False):
            return _native_convolution(call)
        return run_convolution(call)


def _backward_kernel(*arguments: Any) -> Gradients:
    with torch._C.DisableTorchFunction():
        return run_backward(BackwardCall.of(arguments))


def _registered(key: str) -> list[Any]:
    """The kernels of both levels, above and below autograd, as the objects that keep them registered."""
    from rocmprobe.bypass import tie

    return [
        _library(key, _convolution_kernel, _backward_kernel),
        _library("Autograd" + key, tie.convolution_kernel, tie.backward_kernel),
    ]


def _library(key: str, convolution: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    # torch does not annotate this class in full.
    library = cast(Any, Library)("aten", "IMPL", key)
    with warnings.catch_warnings():
        # PyTorch warns of what is the purpose here: a kernel of its own is overridden.
        warnings.simplefilter("ignore")
        library.impl("convolution", untraced(convolution))
        library.impl("_convolution", untraced(convolution))
        library.impl("convolution_backward", untraced(backward))
    return library
