"""Counters of the bypass for the whole process."""

from __future__ import annotations

from collections import Counter

from rocmprobe.bypass.operators import lock_across_forks

_lock = lock_across_forks()
_calls: Counter[str] = Counter()
_native: Counter[str] = Counter()
_pytorch: Counter[str] = Counter()


def count_call(algorithm: str) -> None:
    """Add 1 to the count of directions that ``algorithm`` computed."""
    with _lock:
        _calls[algorithm] += 1


def count_native(reason: str) -> None:
    """Add 1 to the count of operator calls that were left to PyTorch for ``reason``."""
    with _lock:
        _native[reason] += 1


def count_pytorch(kind: str) -> None:
    """Add 1 to the count of calls of the layer ``kind`` that PyTorch's own kernels computed."""
    with _lock:
        _pytorch[kind] += 1


def counted() -> dict[str, dict[str, int]]:
    """Return all counts since the last :func:`reset_status`.

    "calls" counts directions by algorithm. "native" counts operator calls left to PyTorch by reason.
    "pytorch" counts calls of PyTorch's own kernels by layer.
    """
    with _lock:
        return {"calls": dict(_calls), "native": dict(_native), "pytorch": dict(_pytorch)}


def reset_status() -> None:
    """Set all counts of :func:`counted` to zero."""
    with _lock:
        _calls.clear()
        _native.clear()
        _pytorch.clear()
