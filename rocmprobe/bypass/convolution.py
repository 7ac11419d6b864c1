"""Interceptor that computes convolutions with the algorithms of the bypass."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

import torch

from rocmprobe.bypass import own_kernels
from rocmprobe.bypass.algorithms import ALGORITHMS, Operands, Plan
from rocmprobe.bypass.algorithms.gemm import ranges
from rocmprobe.bypass.algorithms.pointwise import is_dense, is_dense_weight
from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients, result_format
from rocmprobe.bypass.choice.choices import Choice
from rocmprobe.bypass.choice.plan import MEGABYTE, eligible, plain_direction, problem_key
from rocmprobe.bypass.counts import count_call, count_native
from rocmprobe.bypass.dispatch import RANK_BYPASS, Interceptor
from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry, geometry

#: Cache that all interceptors of the process share. The key is (form of the call, maximum workspace in bytes,
#: algorithm). The value is the prepared call, or the reason why the call is left to PyTorch. A network needs
#: a few hundred entries.
_prepared: dict[Any, Union[_Prepared, str]] = {}
_MOST_PREPARED = 4096


def forget_prepared() -> None:
    """Clear the cache of chosen algorithms."""
    _prepared.clear()


class BypassInterceptor(Interceptor):
    """Interceptor that computes supported convolutions, and passes all others to the next interceptor.

    Args:
        workspace_mb: maximum workspace for each direction, in MiB.
        algorithm: "auto", or the name of the algorithm to use if it applies.
    """

    name = "bypass"
    rank = RANK_BYPASS
    keeps_backward = True

    def __init__(self, workspace_mb: float, algorithm: str) -> None:
        self._cap = int(workspace_mb * MEGABYTE)
        self._algorithm = algorithm

    def convolution(
        self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], torch.Tensor]
    ) -> torch.Tensor:
        prepared = self._prepare(call)
        if isinstance(prepared, str):
            count_native(prepared)
            return proceed(call)
        with _plain_arithmetic(call.input):
            if call.weight.dim() == 3:
                call = call.as_2d()
            output = _empty(prepared.output_shape, call.input, prepared.layout)
            prepared.problem.through(
                plain_direction(FWD, call.transposed), call.input, call.weight, bias=call.bias, result=output
            )
            # Use squeeze_, because squeeze returns a view, and callers could not modify the view in place.
            return output.squeeze_(2) if prepared.lifted else output

    def convolution_backward(
        self, call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        prepared = self._prepare(call)
        if isinstance(prepared, str):
            count_native(prepared)
            return proceed(call)
        with _plain_arithmetic(call.input):
            if not prepared.lifted:
                return self._backward(call, prepared)
            to_input, to_weight, to_bias = self._backward(call.as_2d(), prepared)
            return _squeezed(to_input), _squeezed(to_weight), to_bias

    def _backward(self, call: BackwardCall, prepared: _Prepared) -> Gradients:
        wants_input, wants_weight, wants_bias = call.output_mask
        to_input = to_weight = to_bias = None
        if wants_input:
            to_input = _empty(call.input.shape, call.input, prepared.layout)
            prepared.problem.through(
                plain_direction(BWD_DATA, call.transposed), call.grad_output, call.weight, bias=None,
                result=to_input,
            )  # fmt: skip
        if wants_weight:
            to_weight = _empty(call.weight.shape, call.weight, prepared.layout)
            sides = (call.input, call.grad_output)
            image, feature = reversed(sides) if call.transposed else sides
            prepared.problem.weights(image, feature, to_weight)
        if wants_bias:
            to_bias = _channel_sums(call.grad_output, self._cap)
        return to_input, to_weight, to_bias

    def _prepare(self, call: Union[ConvolutionCall, BackwardCall]) -> Union[_Prepared, str]:
        key = (call.form(), self._cap, self._algorithm)
        known = _prepared.get(key)
        if known is None:
            if len(_prepared) >= _MOST_PREPARED:
                _prepared.clear()
            known = _prepared[key] = self._fresh(call)
        return known

    def _fresh(self, call: Union[ConvolutionCall, BackwardCall]) -> Union[_Prepared, str]:
        try:
            plain = _plain_form(call)
        except _LeftNativeError as reason:
            return str(reason)
        lifted = call.weight.dim() == 3
        return _Prepared(
            ConvolutionShape(plain, self._cap, self._algorithm),
            result_format(call.as_2d() if lifted else call),
            (plain.batch, *_output_side(plain, call.transposed)),
            lifted,
        )


@dataclass(frozen=True)
class _Prepared:
    """Cache entry for all calls with the same ``form()``.

    ``lifted`` is True if a 1-d problem is computed as a 2-d problem of height 1.
    """

    problem: ConvolutionShape
    layout: torch.memory_format
    output_shape: tuple[int, ...]
    lifted: bool


class _LeftNativeError(Exception):
    """Raised if the bypass does not support a convolution."""


def _plain_form(call: Union[ConvolutionCall, BackwardCall]) -> Geometry:
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
    if any(each.layout != torch.strided for each in tensors):
        raise _LeftNativeError("layout other than strided")
    if any(each.numel() == 0 for each in tensors):
        raise _LeftNativeError("nothing to compute")
    refused = _LeftNativeError("arguments that PyTorch refuses")
    spatial = call.weight.dim() - 2
    if spatial == 1 and call.input.dim() == 3 and len(call.stride) == len(call.padding) == 1:
        call = call.as_2d()
    try:
        plain = geometry(
            call.input.shape,
            call.weight.shape,
            stride=call.stride,
            padding=call.padding,
            dilation=call.dilation,
            transposed=call.transposed,
            output_padding=call.output_padding if call.transposed else None,
            groups=call.groups,
        )
    except ValueError:
        raise refused from None
    channels, *sizes = _output_side(plain, call.transposed)
    if isinstance(call, BackwardCall):
        if call.grad_output.shape != (plain.batch, channels, *sizes):
            raise refused
    elif call.bias is not None and call.bias.shape != (channels,):
        raise refused
    return plain


def _autocast_enabled() -> bool:
    # torch 2 has one function for all device types, torch 1 has a function for each device type.
    some = getattr(torch._C, "_is_any_autocast_enabled", None)
    return bool(some() if some else torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled())


def _plain_arithmetic(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    # A backward pass inside an autocast region runs with autocast enabled, which would round the operands.
    if not _autocast_enabled():
        return nullcontext()
    return torch.autocast(tensor.device.type, enabled=False)


def _output_side(plain: Geometry, transposed: bool) -> tuple[int, ...]:
    return (plain.channels, *plain.image) if transposed else (plain.filters, *plain.feature)


def _empty(shape: tuple[int, ...], like: torch.Tensor, layout: torch.memory_format) -> torch.Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=layout)


def _channel_sums(gradient: torch.Tensor, cap: int) -> torch.Tensor:
    """Return the gradient of a bias: the sum of ``gradient`` for each channel."""
    dimensions = (0, *range(2, gradient.dim()))
    if gradient.element_size() >= 4:
        return gradient.sum(dimensions)
    # On a CPU, PyTorch sums fp16 and bf16 through a copy in fp32. Sum a few channels at a time, so that the
    # copy has at most ``cap`` bytes. A copy of one channel can be larger.
    step = max(1, cap // (4 * gradient[:, 0].numel()))
    parts = ranges(gradient.shape[1], step)
    return torch.cat([gradient[:, first:last].sum(dimensions) for first, last in parts])


def _squeezed(gradient: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    return None if gradient is None else gradient.squeeze_(2)


DTYPES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}


class ConvolutionShape:
    """Convolution of fixed sizes, with one chosen plan for each direction.

    All calls must pass operands of the same memory layout.

    Args:
        plain: sizes of the (not transposed) convolution.
        cap: maximum workspace in bytes for each direction.
        algorithm: "auto", or the name of the algorithm to use if it applies.
    """

    def __init__(self, plain: Geometry, cap: int, algorithm: str) -> None:
        self.plain = plain
        self._cap = cap
        self._algorithm = algorithm
        self._flipped: Geometry | None = None
        self._choices: dict[str, Choice] = {}

    def through(
        self,
        direction: str,
        source: torch.Tensor,
        weight: torch.Tensor,
        *,
        bias: torch.Tensor | None,
        result: torch.Tensor,
    ) -> None:
        """Compute fwd or bwd-data, and write the result into ``result``.

        ``source`` has the shape of the convolution's input in fwd, and of its output in bwd-data. ``bias``
        has one value per channel of ``result``.
        """

        def run(plan: Plan) -> None:
            algorithm = ALGORITHMS[plan.algorithm]
            if plan.flipped:
                if self._flipped is None:
                    self._flipped = self.plain.flipped()
                algorithm.forward(plan, self._flipped, source, _flipped(weight, self.plain), bias, result)
            elif direction == FWD:
                algorithm.forward(plan, self.plain, source, weight, bias, result)
            else:
                algorithm.backward_data(plan, self.plain, source, weight, bias, result)

        choice = self._choices.get(direction)
        if choice is None:
            dense = is_dense(self.plain, source) and is_dense_weight(self.plain, weight)
            choice = self._choice(direction, result, dense)
        self._compute(choice, run)

    def weights(self, image: torch.Tensor, feature: torch.Tensor, result: torch.Tensor) -> None:
        """Compute bwd-weights, and write the weight gradient into ``result``."""

        def run(plan: Plan) -> None:
            ALGORITHMS[plan.algorithm].backward_weights(plan, self.plain, image, feature, result)

        choice = self._choices.get(BWD_WEIGHTS)
        if choice is None:
            choice = self._choice(BWD_WEIGHTS, result, is_dense(self.plain, image, feature))
        self._compute(choice, run)

    def _compute(self, choice: Choice, run: Callable[[Plan], None]) -> None:
        plan = choice.plan(run)
        count_call(plan.algorithm)
        run(plan)

    def _choice(self, direction: str, result: torch.Tensor, dense: bool) -> Choice:
        dtype = DTYPES[result.dtype]
        operands = Operands(
            dtype=dtype,
            device_type=result.device.type,
            channels_last=not result.is_contiguous(),
            dense=dense,
            own_kernels=own_kernels.module(result.device, dtype),
        )
        plans = eligible(direction, self.plain, operands, self._cap, self._algorithm)
        line = problem_key(direction, self.plain, operands, self._cap, self._algorithm)
        choice = Choice(line, plans, result.device)
        return self._choices.setdefault(direction, choice)


def _flipped(weight: torch.Tensor, plain: Geometry) -> torch.Tensor:
    """Return the weight of the convolution ``plain.flipped()``, ``(channels, filters / groups, *kernel)``."""
    grouped = weight.reshape(plain.groups, plain.filters // plain.groups, *weight.shape[1:])
    swapped = grouped.flip(tuple(range(3, grouped.dim()))).transpose(1, 2)
    return swapped.reshape(plain.channels, plain.filters // plain.groups, *plain.kernel)
