"""Results under the bypass compared with PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch

from rocmprobe import bypass


def calls() -> int:
    """Return how many calls the bypass has computed; none may be left to PyTorch."""
    assert not bypass.status()["native"]
    return sum(bypass.status()["calls"].values())


def everything(module: Any, input: torch.Tensor) -> list[torch.Tensor]:
    """Return the output, and the gradients of input and parameters."""
    input = input.detach().requires_grad_()
    output = module(input)
    gradient = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).reshape(output.shape)
    return [
        output.detach(),
        *torch.autograd.grad(output, [input, *module.parameters()], gradient.to(output.dtype)),
    ]


def assert_close(mine: Sequence[Any], theirs: Sequence[Any], strides: bool = False, **limits: float) -> None:
    assert len(mine) == len(theirs)
    for got, expected in zip(mine, theirs):
        assert not strides or got.stride() == expected.stride()
        torch.testing.assert_close(got, expected, **limits)


def check(
    results: Callable[[], Sequence[Any]], count: Optional[int] = None, strides: bool = False, **limits: float
) -> None:
    """Compare the results under the bypass with those without, and the number of its calls with ``count``."""
    expected = results()
    bypass.reset_status()
    with bypass.enabled("cpu"):
        got = results()
    assert calls() if count is None else calls() == count
    assert_close(got, expected, strides, **limits)
