"""Keeps torch.compile away from Python code that PyTorch calls in the middle of an operator.

Where a compiled program has a graph break, Dynamo takes up every Python frame that is entered next, that of a
kernel written in Python included.
"""

from __future__ import annotations

from typing import Any, Callable

import torch


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, whose frame and those below it are not taken up by Dynamo."""
    disable = getattr(torch, "_disable_dynamo", None)
    if disable is None:
        return function
    disabled = disable(function)

    def call(*arguments: Any) -> Any:
        # To Dynamo, which takes up this frame, the answer is yes. Else the detour would cost every call time.
        if torch.compiler.is_compiling():
            return disabled(*arguments)
        return function(*arguments)

    return call
