"""Layers that PyTorch computes with kernels of its own: where one fails, the vendor library is not it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rocmprobe.checks.check import KERNELS, Check
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.layer import UNIT, compare, leaf, uniform, with_gradients
from rocmprobe.checks.tools.repro_script import control

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


_control = partial(Check, rung="controls", requires=KERNELS, verified=False)
CHECKS = (
    _control(
        "pooling", question="Are max and average pooling, PyTorch's own kernels, right?",
        function=pooling,
        script=control("F.max_pool2d(x, 3, 2, 1)", "F.avg_pool2d(x, 3, 2, 1)"),
    ),
    _control(
        "activation", question="Are ReLU, GELU, sigmoid and their like right, with their gradients?",
        function=activation,
        script=control(
            "torch.relu(x)", "F.leaky_relu(x)", "torch.sigmoid(x)", "torch.tanh(x)", "F.gelu(x)", "F.silu(x)"
        ),
    ),
    _control(
        "softmax", question="Are softmax and its logarithm right, with their gradients?",
        function=softmax, script=control("F.softmax(x, 1)", "F.log_softmax(x, 1)"),
    ),
    _control(
        "instance-norm", question="Is instance norm without weights, PyTorch's own kernel, right?",
        function=instance_norm, script=control("F.instance_norm(x)"),
    ),
    _control(
        "local-response-norm", question="Is local response norm, PyTorch's own kernels, right?",
        function=local_response_norm, script=control("F.local_response_norm(x, 5, 1.0)"),
    ),
)  # fmt: skip
