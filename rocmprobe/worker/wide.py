"""A GPU's convolution kernels as a CPU has them: half precision computed in fp32.

A GPU accumulates half precision in fp32, and an old CPU build of PyTorch has no half kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Optional

from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients


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
