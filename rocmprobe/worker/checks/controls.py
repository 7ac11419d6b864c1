"""Layers that PyTorch computes with kernels of its own: where one fails, the vendor library is not it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocmprobe.worker.checks.layer import UNIT, compare, leaf, uniform, with_gradients
from rocmprobe.worker.context import CheckContext, CheckResult

_IMAGE = (2, 6, 9, 10)
#: Size, stride and padding of the pooling windows.
_WINDOW = (3, 2, 1)


def pooling(context: CheckContext) -> CheckResult:
    """Max and average pooling in 2-d, windows that overlap."""
    import torch.nn.functional as F

    return _with_gradients(context, {"max": F.max_pool2d, "average": F.avg_pool2d}, *_WINDOW)


def activation(context: CheckContext) -> CheckResult:
    """ReLU, leaky ReLU, sigmoid, tanh, GELU and SiLU."""
    import torch
    import torch.nn.functional as F

    functions = (F.relu, F.leaky_relu, torch.sigmoid, torch.tanh, F.gelu, F.silu)
    return _with_gradients(context, {function.__name__: function for function in functions})


def softmax(context: CheckContext) -> CheckResult:
    """Softmax and log softmax over the channels."""
    import torch.nn.functional as F

    return _with_gradients(context, {"softmax": F.softmax, "log softmax": F.log_softmax}, 1)


def instance_norm(context: CheckContext) -> CheckResult:
    """Without weights: with weights it would be batch norm, which enters the vendor library."""
    import torch.nn.functional as F

    return _with_gradients(context, {"instance norm": F.instance_norm})


def local_response_norm(context: CheckContext) -> CheckResult:
    """Over five channels; by a whole share of them, so that an error in it shows."""
    import torch.nn.functional as F

    return _with_gradients(context, {"local response norm": F.local_response_norm}, 5, 1.0)


def _with_gradients(
    context: CheckContext, functions: dict[str, Callable[..., Any]], *arguments: Any
) -> CheckResult:
    """Each function of one image, and its gradient for the output of the other image of the batch: for a
    plain sum, that of softmax or of a norm would be zero."""

    def call(image: Any) -> dict[str, Any]:
        found = {}
        for name, function in functions.items():
            x = leaf(image)
            output = function(x, *arguments)
            for what, tensor in with_gradients(output, {"input": x}, output.detach().flip(0)).items():
                found[f"{name}: {what}"] = tensor
        return found

    return compare(context, uniform(context, [_IMAGE]), call, UNIT)
