"""Batch norm, which enters the vendor library as convolution does: in training, and with the statistics
that training left."""

from __future__ import annotations

from typing import Any

from rocmprobe.worker.checks.layer import UNIT, compare, leaf, with_gradients
from rocmprobe.worker.context import CheckContext, CheckResult

_IMAGE, _CHANNELS = (4, 16, 14, 14), 16


def _drawn(context: CheckContext, *shapes: Any) -> list[Any]:
    """Uniform in [0.5, 1.5): weights and variances far from zero."""
    import torch

    generator = torch.Generator().manual_seed(context.seed())
    drawn = [torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5 for shape in shapes]
    return [tensor.to(context.dtype).to(torch.float64) for tensor in drawn]


def wide(tensor: Any) -> Any:
    """Half precision as fp32: as autocast has the weights of batch norm, and as MIOpen wants them."""
    return tensor.float() if tensor.element_size() == 2 else tensor


def batch_norm(context: CheckContext) -> CheckResult:
    """Training mode, forward and gradients of input, weight and bias."""
    import torch.nn.functional as F

    def call(image: Any, weight: Any, bias: Any, grad: Any) -> dict[str, Any]:
        leaves = {"input": leaf(image), "weight": leaf(wide(weight)), "bias": leaf(wide(bias))}
        x, w, b = leaves.values()
        return with_gradients(F.batch_norm(x, None, None, w, b, training=True), leaves, grad)

    return compare(context, _drawn(context, _IMAGE, _CHANNELS, _CHANNELS, _IMAGE), call, UNIT)


def batch_norm_eval(context: CheckContext) -> CheckResult:
    """With running mean and variance, forward alone: backward enters the library in training only."""
    import torch
    import torch.nn.functional as F

    def call(image: Any, *of_channels: Any) -> dict[str, Any]:
        mean, variance, weight, bias = map(wide, of_channels)
        with torch.no_grad():
            return {"output": F.batch_norm(image, mean, variance, weight, bias, training=False)}

    return compare(context, _drawn(context, _IMAGE, *[_CHANNELS] * 4), call, UNIT)
