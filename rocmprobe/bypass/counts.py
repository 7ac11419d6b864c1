"""What the bypass did, counted for the whole process."""

from __future__ import annotations

from collections import Counter

from rocmprobe.bypass.locks import lock_across_forks

_lock = lock_across_forks()
_calls: Counter[str] = Counter()
_native: Counter[str] = Counter()


def count_call(algorithm: str) -> None:
    """One direction of one problem was computed by ``algorithm``."""
    with _lock:
        _calls[algorithm] += 1


def count_native(reason: str) -> None:
    """One call of an operator was left to PyTorch for ``reason``."""
    with _lock:
        _native[reason] += 1


def status() -> dict[str, dict[str, int]]:
    """What was computed since the last :func:`reset_status`, on all devices and threads.

    ``calls`` maps an algorithm to the number of directions it computed (a backward has up to two, bwd-data
    and bwd-weights; a bias gradient is a plain sum and not counted). ``native`` maps a reason to the number
    of operator calls that were left to PyTorch's own kernels for it.
    """
    with _lock:
        return {"calls": dict(_calls), "native": dict(_native)}


def reset_status() -> None:
    """Set all counts of :func:`status` to zero."""
    with _lock:
        _calls.clear()
        _native.clear()
