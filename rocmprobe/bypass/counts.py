"""Counters of the bypass, separate for each process."""

from __future__ import annotations

import os
from collections import Counter

from rocmprobe.bypass.operators import lock_across_forks

_lock = lock_across_forks()
_calls: Counter[str] = Counter()
_native: Counter[str] = Counter()
_pytorch: Counter[str] = Counter()


def count_call(algorithm: str) -> None:
    """Count one direction that ``algorithm`` computed."""
    with _lock:
        _calls[algorithm] += 1


def count_native(reason: str) -> None:
    """Count one operator call that was left to PyTorch for ``reason``."""
    with _lock:
        _native[reason] += 1


def count_pytorch(kind: str) -> None:
    """Count one call of the layer ``kind`` that PyTorch's own kernels computed."""
    with _lock:
        _pytorch[kind] += 1


def counted() -> dict[str, dict[str, int]]:
    """Return all counts since the last :func:`reset_status`.

    - "calls": number of computed directions, by algorithm
    - "native": number of operator calls left to PyTorch, by reason
    - "pytorch": number of calls of PyTorch's own kernels, by layer
    """
    with _lock:
        return {"calls": dict(_calls), "native": dict(_native), "pytorch": dict(_pytorch)}


def reset_status() -> None:
    """Set all counts to zero."""
    with _lock:
        _calls.clear()
        _native.clear()
        _pytorch.clear()


# A forked process counts its own calls, as a spawned one does. Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset_status)
