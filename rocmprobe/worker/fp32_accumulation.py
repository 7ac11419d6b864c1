"""A GPU's convolution kernels as a CPU has them: half precision computed in fp32.

A GPU accumulates half precision in fp32. An old CPU build of PyTorch has no half kernels, and later ones
round more than once in backward: the sum over taps (bwd-data) or samples (bwd-weights) runs in the dtype.
Seen in torch 2.13: fp16 on a CPU without AVX512-FP16, and bf16 with oneDNN off; forward rounds once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Optional

from rocmprobe.bypass import dispatch, registration
from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients


class Fp32Accumulation(dispatch.Interceptor):
    """A GPU's convolutions on a CPU."""

    name = "wide"
    rank = dispatch.RANK_FAULTS

    def convolution(self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], Any]) -> Any:
        return output(call, proceed)

    def convolution_backward(
        self, call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        return gradients(call, proceed)


@contextmanager
def in_place(layer: Fp32Accumulation) -> Iterator[None]:
    """The convolutions of this process's CPU go through ``layer``."""
    registration.add_interceptor(layer, "cpu")
    try:
        yield
    finally:
        registration.remove_interceptor(layer, "cpu")


def output(call: ConvolutionCall, proceed: Callable[[ConvolutionCall], Any]) -> Any:
    """The output of ``call`` in its dtype."""
    lifted = replace(call, input=widened(call.input), weight=widened(call.weight), bias=widened(call.bias))
    return proceed(lifted).to(call.input.dtype)


def gradients(call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]) -> Gradients:
    """The gradients of ``call`` in its dtype."""
    lifted = replace(
        call, grad_output=widened(call.grad_output), input=widened(call.input), weight=widened(call.weight)
    )
    narrow = [None if each is None else each.to(call.input.dtype) for each in proceed(lifted)]
    return narrow[0], narrow[1], narrow[2]


def widened(tensor: Optional[Any]) -> Any:
    """Half precision as fp32, anything else as it is."""
    import torch

    return (
        tensor.float() if tensor is not None and tensor.dtype in (torch.float16, torch.bfloat16) else tensor
    )
