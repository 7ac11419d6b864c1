"""Helpers for Python kernels of PyTorch's operators: registration, graph capture and fork-safe locks."""

from __future__ import annotations

import os
import threading
import warnings
from typing import Any, Callable, cast

import torch
from torch.library import Library

KEYS = {"cpu": "CPU", "cuda": "CUDA"}


def kernel_library(key: str, kernels: dict[str, Callable[..., Any]]) -> Any:
    """Register Python kernels for ``aten`` operators under the dispatch key ``key``.

    ``kernels`` maps operator names to functions. The kernels stay registered until the returned object is
    freed.
    """
    # torch has incomplete type annotations for this class.
    library = cast(Any, Library)("aten", "IMPL", key)
    with warnings.catch_warnings():
        # PyTorch warns that a kernel of PyTorch is overridden. This is intended.
        warnings.simplefilter("ignore")
        for name, kernel in kernels.items():
            library.impl(name, untraced(kernel))
    return library


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Prevent ``torch.compile`` from compiling ``function`` and the functions that it calls."""
    disable = getattr(torch, "_disable_dynamo", None)
    if disable is None:
        return function
    disabled = disable(function)
    # torch 2.1 and 2.2 lack this function. There, disable Dynamo except in a trace, which refuses it.
    compiler = cast(Any, torch).compiler
    is_compiling = getattr(compiler, "is_compiling", lambda: not cast(Any, torch.jit).is_tracing())

    def call(*arguments: Any) -> Any:
        # Disable Dynamo only while it compiles this frame. At other times, disabling it would cost time
        # without any effect.
        if is_compiling():
            return disabled(*arguments)
        return function(*arguments)

    return call


def capturing(device: torch.device) -> bool:
    """Return True if the current stream of ``device`` is being captured as a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def lock_across_forks() -> Any:
    """Return a reentrant lock that a forked process can still acquire."""
    # A lock that another thread holds during a fork would stay locked in the child.
    lock = threading.RLock()
    # Windows has no fork.
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
