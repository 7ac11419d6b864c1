"""Checks of layers that PyTorch always computes with its own kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rocmprobe.checks.check import KERNELS
from rocmprobe.checks.tools.computation import Named, uniform
from rocmprobe.checks.tools.layer_check import layer_check

if TYPE_CHECKING:
    from torch import Tensor


def pooling(image: Tensor) -> Named:
    """Apply 2-d max and average pooling with overlapping windows."""
    import torch.nn.functional as F

    functions: Any = {"max": F.max_pool2d, "average": F.avg_pool2d}
    return with_gradient_of_input(image, functions, kernel_size=3, stride=2, padding=1)


def activation(image: Tensor) -> Named:
    """Apply ReLU, leaky ReLU, sigmoid, tanh, GELU and SiLU."""
    import torch
    import torch.nn.functional as F

    functions = (F.relu, F.leaky_relu, torch.sigmoid, torch.tanh, F.gelu, F.silu)
    return with_gradient_of_input(image, {function.__name__: function for function in functions})


def softmax(image: Tensor) -> Named:
    """Apply softmax and log softmax over the channels."""
    import torch.nn.functional as F

    return with_gradient_of_input(image, {"softmax": F.softmax, "log softmax": F.log_softmax}, dim=1)


def instance_norm(image: Tensor) -> Named:
    """Apply instance norm without weight and bias."""
    import torch.nn.functional as F

    # PyTorch computes instance norm as batch norm. With weight and bias, it would call the vendor library.
    return with_gradient_of_input(image, {"instance norm": F.instance_norm})


def local_response_norm(image: Tensor) -> Named:
    """Apply local response norm over five channels."""
    import torch.nn.functional as F

    # A large alpha makes an error in the sum visible.
    return with_gradient_of_input(image, {"local response norm": F.local_response_norm}, size=5, alpha=1.0)


def with_gradient_of_input(
    image: Tensor, functions: Mapping[str, Callable[..., Tensor]], **options: object
) -> Named:
    """Return each function's output and the gradient of its input."""
    import torch

    results = {}
    for name, function in functions.items():
        x = image.detach().requires_grad_()
        y = function(x, **options)
        results[f"{name}: output"] = y.detach()
        # If the gradient of the output were constant, the gradients of softmax and instance norm would be
        # zero.
        results[f"{name}: gradient of input"] = torch.autograd.grad(y, x, y.detach().flip(0))[0]
    return results


_control = partial(
    layer_check,
    draw=partial(uniform, {"image": (2, 6, 9, 10)}),
    rung="controls",
    requires=KERNELS,
)
CHECKS = (
    _control(
        "pooling", question="Are max and average pooling (PyTorch's own kernels) correct?", call=pooling
    ),
    _control(
        "activation",
        question="Are ReLU, GELU, sigmoid and similar functions correct, with their gradients?",
        call=activation,
    ),
    _control("softmax", question="Are softmax and log-softmax correct, with their gradients?", call=softmax),
    _control(
        "instance-norm",
        question="Is instance norm without weights (PyTorch's own kernel) correct?",
        call=instance_norm,
    ),
    _control(
        "local-response-norm",
        question="Is local response norm (PyTorch's own kernels) correct?",
        call=local_response_norm,
    ),
)
