"""Interceptor that computes convolutions with the algorithms of the bypass."""

from __future__ import annotations

from typing import Any, Callable, Optional, Union

import torch

from rocmprobe.bypass import kernel_modules
from rocmprobe.bypass.algorithms import Task
from rocmprobe.bypass.algorithms.matrices import is_dense, ranges
from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.bypass.choice.choices import Choice, compute, plain_direction
from rocmprobe.bypass.choice.settings import MEGABYTE
from rocmprobe.bypass.counts import count_call, count_native
from rocmprobe.bypass.dispatch import Interceptor
from rocmprobe.bypass.memory_format import result_strides
from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry, geometry

DTYPES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}
#: Prepared convolutions that all interceptors of the process share, keyed by maximum workspace and algorithm,
#: then by the form of the call. A convolution that is left to PyTorch has the reason as its value.
_prepared: dict[tuple[int, str], dict[Any, Union[_Prepared, str]]] = {}
#: A network needs a few hundred forms.
_MOST_PREPARED = 4096


def forget_prepared() -> None:
    """Clear the cache of chosen plans."""
    for forms in _prepared.values():
        forms.clear()


class BypassInterceptor(Interceptor):
    """Interceptor that computes supported convolutions, and passes all others to the next interceptor.

    Args:
        workspace_mb: maximum workspace for each direction, in MiB.
        algorithm: "auto", or the name of the algorithm to use if it applies.
        keeps_backward: see :class:`Interceptor`.
    """

    name = "bypass"
    rank = 1

    def __init__(self, workspace_mb: float, algorithm: str, keeps_backward: bool = False) -> None:
        self.keeps_backward = keeps_backward
        self._cap = int(workspace_mb * MEGABYTE)
        self._algorithm = algorithm
        self._forms = _prepared.setdefault((self._cap, algorithm), {})

    def convolution(
        self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], torch.Tensor]
    ) -> torch.Tensor:
        prepared = self._prepare(call)
        if isinstance(prepared, str):
            count_native(prepared)
            return proceed(call)
        if not _autocast_enabled():
            return prepared.output(call)
        with torch.autocast(call.input.device.type, enabled=False):
            return prepared.output(call)

    def convolution_backward(
        self, call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        prepared = self._prepare(call)
        if isinstance(prepared, str):
            count_native(prepared)
            return proceed(call)
        if not _autocast_enabled():
            return prepared.gradients(call)
        # A backward pass inside an autocast region would round the operands.
        with torch.autocast(call.input.device.type, enabled=False):
            return prepared.gradients(call)

    def _prepare(self, call: Union[ConvolutionCall, BackwardCall]) -> Union[_Prepared, str]:
        form = call.form()
        known = self._forms.get(form)
        if known is None:
            if len(self._forms) >= _MOST_PREPARED:
                self._forms.clear()
            try:
                known = _Prepared(call, self._cap, self._algorithm)
            except _LeftNativeError as reason:
                known = str(reason)
            self._forms[form] = known
        return known


class _Prepared:
    """A convolution of fixed sizes, strides, dtype and device, with everything that depends on them.

    A 1-d convolution is computed as a 2-d convolution of height 1.

    Raises:
        _LeftNativeError: if the bypass does not support the convolution.
    """

    def __init__(self, call: Union[ConvolutionCall, BackwardCall], cap: int, algorithm: str) -> None:
        self._dtype = _checked_dtype(call)
        self._device = call.input.device
        self._lifted = call.weight.dim() == 3
        if self._lifted:
            sides = [call.input, *([call.grad_output] if isinstance(call, BackwardCall) else [])]
            if any(each.dim() != 3 for each in sides) or not len(call.stride) == len(call.padding) == 1:
                raise _LeftNativeError(_REFUSED)
            call = call.as_2d()
        self._plain = _checked_geometry(call)
        self._cap, self._algorithm = cap, algorithm
        self._transposed = call.transposed
        output = (self._plain.batch, *_output_side(self._plain, call.transposed))
        shapes = {"output": output, "input": tuple(call.input.shape), "weight": tuple(call.weight.shape)}
        #: Shape and strides of each possible result.
        self._results = dict(zip(shapes, zip(shapes.values(), result_strides(call, *shapes.values()))))
        self._choices: dict[str, Choice] = {}

    def output(self, call: ConvolutionCall) -> torch.Tensor:
        """Return the output of a convolution."""
        input, weight = call.input, call.weight
        if self._lifted:
            input, weight = input.unsqueeze(2), weight.unsqueeze(2)
        result = self._empty("output", input)
        self._compute(FWD, input, result, weight, call.bias)
        return self._unlifted(result)

    def gradients(self, call: BackwardCall) -> Gradients:
        """Return the gradients of input, weight and bias that are requested."""
        wants_input, wants_weight, wants_bias = call.output_mask
        gradient, input, weight = call.grad_output, call.input, call.weight
        if self._lifted:
            gradient, input, weight = (each.unsqueeze(2) for each in (gradient, input, weight))
        to_input = to_weight = to_bias = None
        if wants_input:
            to_input = self._empty("input", input)
            self._compute(BWD_DATA, to_input, gradient, weight, None)
            to_input = self._unlifted(to_input)
        if wants_weight:
            to_weight = self._empty("weight", weight)
            self._compute(BWD_WEIGHTS, input, gradient, to_weight, None)
            to_weight = self._unlifted(to_weight)
        if wants_bias:
            to_bias = _channel_sums(call.grad_output, self._cap)
        return to_input, to_weight, to_bias

    def _empty(self, name: str, like: torch.Tensor) -> torch.Tensor:
        return like.new_empty_strided(*self._results[name])

    def _unlifted(self, result: torch.Tensor) -> torch.Tensor:
        # Use squeeze_, because squeeze returns a view, and callers could not modify the view in place.
        return result.squeeze_(2) if self._lifted else result

    def _compute(
        self,
        direction: str,
        input: torch.Tensor,
        output: torch.Tensor,
        weight: torch.Tensor,
        bias: Optional[torch.Tensor],
    ) -> None:
        """Compute one direction, and write its result: the output, the input or the weight."""
        image, feature = (output, input) if self._transposed else (input, output)
        choice = self._choices.get(direction) or self._choice(direction, image, weight, feature)
        plan = choice.plan or choice.settle(image, weight, bias, feature)
        count_call(plan.algorithm)
        compute(plan, image, weight, bias, feature)

    def _choice(
        self, direction: str, image: torch.Tensor, weight: torch.Tensor, feature: torch.Tensor
    ) -> Choice:
        turned = plain_direction(direction, self._transposed)
        tensors = {FWD: feature, BWD_DATA: image, BWD_WEIGHTS: weight}
        result = tensors.pop(turned)
        task = Task(
            turned,
            self._plain,
            self._dtype,
            self._device.type,
            channels_last=not result.is_contiguous(),
            dense=all(is_dense(self._plain, each, each is weight) for each in tensors.values()),
            cap=self._cap,
            kernels=kernel_modules.module(self._device, self._dtype),
        )
        return self._choices.setdefault(direction, Choice(task, self._device, self._algorithm))


class _LeftNativeError(Exception):
    """Raised if the bypass does not support a convolution."""


_REFUSED = "arguments that PyTorch refuses"


def _checked_dtype(call: Union[ConvolutionCall, BackwardCall]) -> str:
    tensors = [call.input, call.weight]
    if isinstance(call, BackwardCall):
        tensors.append(call.grad_output)
    elif call.bias is not None:
        tensors.append(call.bias)
    dtype, device = call.input.dtype, call.input.device
    if dtype not in DTYPES:
        raise _LeftNativeError(f"dtype {str(dtype).rsplit('.', 1)[-1]}")
    if any(each.dtype != dtype or each.device != device for each in tensors):
        raise _LeftNativeError("operands with different dtypes or devices")
    if any(each.numel() == 0 for each in tensors):
        raise _LeftNativeError("nothing to compute")
    return DTYPES[dtype]


def _checked_geometry(call: Union[ConvolutionCall, BackwardCall]) -> Geometry:
    try:
        plain = geometry(
            tuple(call.input.shape),
            tuple(call.weight.shape),
            stride=call.stride,
            padding=call.padding,
            dilation=call.dilation,
            transposed=call.transposed,
            output_padding=call.output_padding if call.transposed else None,
            groups=call.groups,
        )
    except ValueError:
        raise _LeftNativeError(_REFUSED) from None
    channels, *sizes = _output_side(plain, call.transposed)
    if isinstance(call, BackwardCall):
        fits = call.grad_output.shape == (plain.batch, channels, *sizes)
    else:
        fits = call.bias is None or call.bias.shape == (channels,)
    if not fits:
        raise _LeftNativeError(_REFUSED)
    return plain


def _autocast_enabled() -> bool:
    # torch 2 has one function for all device types, torch 1 has a function for each device type.
    some = getattr(torch._C, "_is_any_autocast_enabled", None)
    return bool(some() if some else torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled())


def _output_side(plain: Geometry, transposed: bool) -> tuple[int, ...]:
    return (plain.channels, *plain.image) if transposed else (plain.filters, *plain.feature)


def _channel_sums(gradient: torch.Tensor, cap: int) -> torch.Tensor:
    """Return the gradient of a bias: the sum of ``gradient`` for each channel."""
    dimensions = (0, *range(2, gradient.dim()))
    if gradient.element_size() >= 4 or gradient.device.type != "cpu":
        return gradient.sum(dimensions)
    # On a CPU, PyTorch sums fp16 and bf16 through a copy in fp32, and torch 1.13.1 sums bf16 without one.
    # Sum a few channels in fp32 at a time, so that the copy has at most ``cap`` bytes. A copy of one channel
    # can be larger.
    step = max(1, cap // (4 * gradient[:, 0].numel()))
    sums = [
        gradient[:, first:last].sum(dimensions, dtype=torch.float32)
        for first, last in ranges(gradient.shape[1], step)
    ]
    return torch.cat(sums).to(gradient.dtype)
