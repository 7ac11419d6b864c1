"""A bypass for calls that ask for it, in their own thread: for one model, or for one call.

Its interceptor is added as any other, and lets pass what does not come from inside of :func:`entered`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rocmprobe.bypass import registration
from rocmprobe.bypass.convolution import BypassInterceptor
from rocmprobe.bypass.dispatch import RANK_BYPASS

_DEVICE_TYPES = ("cpu", "cuda")

_local = threading.local()


class ScopedInterceptor(BypassInterceptor):
    """Acts in a thread that is inside of :func:`entered`, there in place of what is installed."""

    rank = RANK_BYPASS + 1

    def acts(self) -> bool:
        entered: tuple[ScopedInterceptor, ...] = getattr(_local, "entered", ())
        return bool(entered) and entered[-1] is self

    def lay(self) -> None:
        """Add it for every device type."""
        for device_type in _DEVICE_TYPES:
            registration.add_interceptor(self, device_type)

    def lift(self) -> None:
        """Take it off again."""
        for device_type in _DEVICE_TYPES:
            registration.remove_interceptor(self, device_type)


@contextmanager
def entered(layer: ScopedInterceptor) -> Iterator[None]:
    """Let ``layer`` act in this thread inside of the block; of nested blocks the innermost holds."""
    outer: tuple[ScopedInterceptor, ...] = getattr(_local, "entered", ())
    _local.entered = (*outer, layer)
    try:
        yield
    finally:
        _local.entered = outer
