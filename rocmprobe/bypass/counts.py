"""What the bypass did, counted for the whole process."""

from __future__ import annotations

from collections import Counter

from rocmprobe.bypass.operators import lock_across_forks

_lock = lock_across_forks()
_calls: Counter[str] = Counter()
_native: Counter[str] = Counter()
_pytorch: Counter[str] = Counter()


def count_call(algorithm: str) -> None:
    """One direction of one problem was computed by ``algorithm``."""
    with _lock:
        _calls[algorithm] += 1


def count_native(reason: str) -> None:
    """One call of an operator was left to PyTorch for ``reason``."""
    with _lock:
        _native[reason] += 1


def count_pytorch(kind: str) -> None:
    """One call of another layer than convolution was given to PyTorch's own kernels."""
    with _lock:
        _pytorch[kind] += 1


def status() -> dict[str, dict[str, int]]:
    """What was computed since the last :func:`reset_status`, on all devices and threads.

    ``calls`` maps an algorithm to the number of directions it computed (a backward has up to two, bwd-data
    and bwd-weights; a bias gradient is a plain sum and not counted). ``native`` maps a reason to the number
    of convolution calls that were left to PyTorch for it. ``pytorch`` maps a kind of other layers, such as
    "batch_norm", to the number of its forward calls that were kept from the vendor library.
    """
    with _lock:
        return {"calls": dict(_calls), "native": dict(_native), "pytorch": dict(_pytorch)}


def reset_status() -> None:
    """Set all counts of :func:`status` to zero."""
    with _lock:
        _calls.clear()
        _native.clear()
        _pytorch.clear()
