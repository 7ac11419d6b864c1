"""Autograd functions that run a convolution's backward through the interceptors of its forward.

The autograd node keeps these interceptors, because they can be removed before the backward runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Callable, cast

import torch
from torch.autograd import forward_ad

from rocmprobe.bypass import dispatch
from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.bypass.operators import untraced

# True if a Function has separate methods forward and setup_context (torch 2). In torch 1, forward does both.
_SETUP_APART = hasattr(torch.autograd.Function, "setup_context")


def convolution_kernel(*arguments: Any) -> torch.Tensor:
    """Compute ``aten::convolution`` and ``aten::_convolution`` under the autograd key."""
    with torch._C.DisableTorchFunction():
        if dispatch.is_traced(arguments):
            return dispatch.convolution_for_tracing(arguments)
        held = dispatch.keeping_interceptors(arguments[0].device.type)
        if not held:
            packet = torch.ops.aten.convolution if len(arguments) == 9 else torch.ops.aten._convolution
            return cast(torch.Tensor, packet.default._op_dk(torch._C.DispatchKey.Autograd, *arguments))
        if _nobody_differentiates() and _next_below(*arguments[:3]):
            with _below_autograd():
                return dispatch.run_convolution(ConvolutionCall.of(arguments), held)
        return cast(torch.Tensor, _apply(_Convolution, held, *arguments))


def backward_kernel(*arguments: Any) -> Gradients:
    """Compute ``aten::convolution_backward`` under the autograd key."""
    with torch._C.DisableTorchFunction():
        held = dispatch.keeping_interceptors(arguments[1].device.type)
        if not held:
            operator = torch.ops.aten.convolution_backward.default
            return cast(Gradients, operator._op_dk(torch._C.DispatchKey.Autograd, *arguments))
        return cast(Gradients, _apply(_Backward, held, *arguments))


def _convolve(held: Sequence[dispatch.Interceptor], call: ConvolutionCall) -> torch.Tensor:
    """Compute a differentiable convolution through the interceptors ``held``."""
    if dispatch.all_active(call.input.device.type, held):
        return cast(torch.Tensor, _operator(call)(*call.arguments()))
    return cast(torch.Tensor, _Convolution.apply(held, *call.arguments()))


def _gradients(held: Sequence[dispatch.Interceptor], call: BackwardCall) -> Gradients:
    if _nobody_differentiates() and _next_below(call.grad_output, call.input, call.weight):
        with torch._C.DisableTorchFunction(), _below_autograd():
            return dispatch.run_backward(call, held)
    if dispatch.all_active(call.input.device.type, held):
        return cast(Gradients, torch.ops.aten.convolution_backward.default(*call.arguments()))
    return cast(Gradients, _Backward.apply(held, *call.arguments()))


def _operator(call: ConvolutionCall) -> Callable[..., Any]:
    packet = torch.ops.aten._convolution if call.flags else torch.ops.aten.convolution
    return cast(Callable[..., Any], packet.default)


def _nobody_differentiates() -> bool:
    return not torch.is_grad_enabled() and forward_ad._current_level < 0


def _transforming() -> bool:
    return _SETUP_APART and bool(torch._C._are_functorch_transforms_active())


def _next_below(*tensors: torch.Tensor | None) -> bool:
    """Return True if calls with ``tensors`` go directly from autograd to the kernel of the device.

    Return False on torch 1, and if a functorch transform, a dispatch mode or a tensor wrapper is active.
    """
    # The comparison at the end fails on torch 1.13.1, which cannot compare sets of dispatch keys.
    if not _SETUP_APART or _transforming() or torch._C._len_torch_dispatch_stack():
        return False
    keys = torch._C._dispatch_keys
    return all(keys(each) == _plain_keys(each.device.type) for each in tensors if each is not None)


@cache
def _plain_keys(device_type: str) -> Any:
    with torch.inference_mode(False):
        return torch._C._dispatch_keys(torch.empty(0, device=device_type))


@contextmanager
def _below_autograd() -> Iterator[None]:
    # On torch 1.13.1 the guard is not a context manager. On all versions of torch, the guard is active until
    # it is deleted.
    guard = torch._C._AutoDispatchBelowAutograd()
    try:
        if _transforming():
            # Calls go to the next outer transform. Enable gradients, because this transform can need them.
            with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
                yield
        else:
            yield
    finally:
        del guard


def _with_outer_tangents(jvp: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``jvp`` so that outer functorch transforms can differentiate ``jvp``."""

    def call(ctx: Any, _interceptors: None, *tangents: Any) -> Any:
        if not _transforming():
            return jvp(ctx, ctx.saved_tensors, tangents)
        # PyTorch disables forward mode in the jvp of a Function, which would make nested derivatives zero.
        with forward_ad._set_fwd_grad_enabled(True):
            # Remove this transform's tangents from the saved tensors. Otherwise, PyTorch would differentiate
            # ``jvp`` for this transform, too, not only for the outer transforms.
            primals = [forward_ad.unpack_dual(each).primal for each in ctx.saved_tensors]
            return jvp(ctx, primals, tangents)

    return call


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    if not _SETUP_APART:
        return cast(Any, function).apply(*arguments)
    # Function.apply would inspect the signature at every call. With nested transforms, Function.apply would
    # also start at the first transform again, although the dispatcher has already reached the current one.
    record = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    if not torch._C._are_functorch_transforms_active():
        return record(*_unwrapped(arguments))
    from torch._functorch.utils import enable_single_level_autograd_function

    with enable_single_level_autograd_function():
        return record(*arguments)


def _unwrapped(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return ``arguments`` without the wrappers of finished functorch transforms."""
    unwrap = torch._C._functorch.unwrap_if_dead
    return tuple(unwrap(each) if isinstance(each, torch.Tensor) else each for each in arguments)


class _InterceptedFunction(torch.autograd.Function):
    """Base class for autograd functions that run on torch 1 and torch 2.

    Subclasses define ``forward`` and ``setup_context`` separately.
    """

    generate_vmap_rule = True

    @classmethod
    def for_this_torch(cls) -> Any:
        if _SETUP_APART:
            return cls
        compute, setup = cls.forward, cls.setup_context

        def forward(ctx: Any, *arguments: Any) -> Any:
            output = compute(*arguments)
            setup(ctx, arguments, output)
            return output

        return type(cls.__name__, (cls,), {"forward": staticmethod(forward)})


class _TiedConvolution(_InterceptedFunction):
    @staticmethod
    def forward(held: Sequence[dispatch.Interceptor], *arguments: Any) -> torch.Tensor:
        call = ConvolutionCall.of(arguments)
        with _below_autograd():
            if not _next_below(call.input, call.weight, call.bias) and dispatch.all_active(
                call.input.device.type, held
            ):
                return cast(torch.Tensor, _operator(call)(*arguments))
            return dispatch.run_convolution(call, held)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.held, input, weight, bias, *ctx.settings = inputs
        ctx.save_for_backward(input, weight)
        ctx.save_for_forward(input, weight)
        ctx.bias_sizes = None if bias is None else list(bias.shape)
        ctx.output_shape = output.shape
        ctx.set_materialize_grads(False)

    @staticmethod
    @untraced
    def backward(ctx: Any, grad_output: torch.Tensor | None) -> tuple[Any, ...]:
        wanted = [bool(each) for each in ctx.needs_input_grad[1:4]]
        gradients: Gradients = (None, None, None)
        if grad_output is not None and any(wanted):
            settings = ctx.settings[:6]
            arguments = (grad_output, *ctx.saved_tensors, ctx.bias_sizes, *settings, wanted)
            gradients = _gradients(ctx.held, BackwardCall.of(arguments))
        return (None, *gradients, *(None for _ in ctx.settings))

    @staticmethod
    @untraced
    @_with_outer_tangents
    def jvp(ctx: Any, primals: Sequence[torch.Tensor], tangents: Sequence[Any]) -> torch.Tensor:
        input, weight = primals
        input_tangent, weight_tangent, bias_tangent = tangents[:3]
        terms = []
        if input_tangent is not None:
            terms.append(_convolve(ctx.held, _call(input_tangent, weight, ctx.settings)))
        if weight_tangent is not None:
            terms.append(_convolve(ctx.held, _call(input, weight_tangent, ctx.settings)))
        if bias_tangent is not None:
            terms.append(_by_channel(bias_tangent, len(ctx.output_shape)).expand(ctx.output_shape))
        return sum(terms[1:], terms[0])


class _TiedBackward(_InterceptedFunction):
    @staticmethod
    def forward(held: Sequence[dispatch.Interceptor], *arguments: Any) -> Gradients:
        call = BackwardCall.of(arguments)
        with _below_autograd():
            if dispatch.all_active(call.input.device.type, held):
                return cast(Gradients, torch.ops.aten.convolution_backward.default(*arguments))
            return dispatch.run_backward(call, held)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.held, grad_output, input, weight, _, *ctx.settings, ctx.mask = inputs
        ctx.save_for_backward(grad_output, input, weight)
        ctx.save_for_forward(grad_output, input, weight)
        ctx.set_materialize_grads(False)

    @staticmethod
    @untraced
    def backward(
        ctx: Any,
        for_input: torch.Tensor | None,
        for_weight: torch.Tensor | None,
        for_bias: torch.Tensor | None,
    ) -> tuple[Any, ...]:
        grad_output, input, weight = ctx.saved_tensors
        _, wants_grad_output, wants_input, wants_weight = ctx.needs_input_grad[:4]
        to_grad_output = to_input = to_weight = None
        if wants_grad_output:
            terms = []
            if for_input is not None:
                terms.append(_convolve(ctx.held, _call(for_input, weight, ctx.settings)))
            if for_weight is not None:
                terms.append(_convolve(ctx.held, _call(input, for_weight, ctx.settings)))
            if for_bias is not None:
                terms.append(_by_channel(for_bias, grad_output.dim()).expand(grad_output.shape))
            to_grad_output = sum(terms[1:], terms[0]) if terms else None
        if wants_input and for_weight is not None:
            arguments = (grad_output, input, for_weight, None, *ctx.settings, [True, False, False])
            to_input = _gradients(ctx.held, BackwardCall.of(arguments))[0]
        if wants_weight and for_input is not None:
            arguments = (grad_output, for_input, weight, None, *ctx.settings, [False, True, False])
            to_weight = _gradients(ctx.held, BackwardCall.of(arguments))[1]
        return (None, to_grad_output, to_input, to_weight, *(None for _ in range(8)))

    @staticmethod
    @untraced
    @_with_outer_tangents
    def jvp(ctx: Any, primals: Sequence[torch.Tensor], tangents: Sequence[Any]) -> tuple[Any, ...]:
        grad_output, input, weight = primals
        of_grad_output, of_input, of_weight = tangents[:3]
        total: list[Any] = [None, None, None]

        def add(
            grad_output: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, which: list[bool]
        ) -> None:
            mask = [wanted and here for wanted, here in zip(ctx.mask, which)]
            if not any(mask):
                return
            sizes = [grad_output.shape[1]] if mask[2] else None
            arguments = (grad_output, input, weight, sizes, *ctx.settings, mask)
            for index, term in enumerate(_gradients(ctx.held, BackwardCall.of(arguments))):
                if mask[index]:
                    total[index] = term if total[index] is None else total[index] + term

        if of_grad_output is not None:
            add(of_grad_output, input, weight, [True, True, True])
        if of_input is not None:
            add(grad_output, of_input, weight, [False, True, False])
        if of_weight is not None:
            add(grad_output, input, of_weight, [True, False, False])
        if ctx.mask[0] and total[0] is None:
            # PyTorch does not accept a missing tangent for an output.
            total[0] = torch.zeros_like(input)
        if ctx.mask[1] and total[1] is None:
            total[1] = torch.zeros_like(weight)
        if ctx.mask[2] and total[2] is None:
            total[2] = grad_output.new_zeros(grad_output.shape[1])
        return tuple(total)


def _call(input: torch.Tensor, weight: torch.Tensor, settings: Sequence[Any]) -> ConvolutionCall:
    return ConvolutionCall.of((input, weight, None, *settings))


def _by_channel(bias: torch.Tensor, dimensions: int) -> torch.Tensor:
    return bias.reshape(1, -1, *(1 for _ in range(dimensions - 2)))


_Convolution = _TiedConvolution.for_this_torch()
_Backward = _TiedBackward.for_this_torch()

# Programs read these attributes of PyTorch's ConvolutionBackward0.
_NODE = _Convolution._backward_cls
_NODE._saved_input = property(lambda node: node.saved_tensors[0])
_NODE._saved_weight = property(lambda node: node.saved_tensors[1])
for _index, _name in enumerate(("stride", "padding", "dilation", "transposed", "output_padding", "groups")):
    setattr(_NODE, f"_saved_{_name}", property(lambda node, index=_index: node.settings[index]))  # type: ignore[misc]
