"""Kernels written in Python for PyTorch's operators: how they are registered, and what they have to guard
against: torch.compile, graphs and forks."""

from __future__ import annotations

import os
import threading
import warnings
from typing import Any, Callable, cast

import torch
from torch.library import Library

#: The device types, and their dispatch keys.
KEYS = {"cpu": "CPU", "cuda": "CUDA"}


def kernel_library(key: str, kernels: dict[str, Callable[..., Any]]) -> Any:
    """Register ``kernels``, by operator of ``aten``, under a key, until the returned object is freed."""
    # torch does not annotate this class in full.
    library = cast(Any, Library)("aten", "IMPL", key)
    with warnings.catch_warnings():
        # PyTorch warns of what is the purpose here: a kernel of its own is overridden.
        warnings.simplefilter("ignore")
        for name, kernel in kernels.items():
            library.impl(name, untraced(kernel))
    return library


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, whose frame and those below it are not compiled by Dynamo.

    Where a compiled program has a graph break, Dynamo compiles every Python frame that is entered next, that
    of a kernel written in Python included.
    """
    disable = getattr(torch, "_disable_dynamo", None)
    if disable is None:
        return function
    disabled = disable(function)

    def call(*arguments: Any) -> Any:
        # While Dynamo compiles this frame, this is true. At other times the detour would only cost time.
        if torch.compiler.is_compiling():
            return disabled(*arguments)
        return function(*arguments)

    return call


def capturing(device: torch.device) -> bool:
    """Whether the current stream of ``device`` is recorded as a graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def lock_across_forks() -> Any:
    """A reentrant lock that whoever forks holds meanwhile.

    A child has the forking thread alone: a lock that another thread held would stay locked in it for ever.
    """
    lock = threading.RLock()
    # Windows has no fork.
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
