"""A bypass for calls that ask for it, in their own thread: for one model, or for one call.

Its layer lies on the shim as any other, and lets pass what does not come from inside of :func:`entered`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rocmprobe.bypass import shim
from rocmprobe.bypass.layer import BypassLayer
from rocmprobe.bypass.shim import RANK_BYPASS

_DEVICE_TYPES = ("cpu", "cuda")

_local = threading.local()


class ScopedLayer(BypassLayer):
    """Acts in a thread that is inside of :func:`entered`, there in place of what is installed."""

    rank = RANK_BYPASS + 1

    def acts(self) -> bool:
        entered: tuple[ScopedLayer, ...] = getattr(_local, "entered", ())
        return bool(entered) and entered[-1] is self

    def lay(self) -> None:
        """Put it on the shim of every device type."""
        for device_type in _DEVICE_TYPES:
            shim.add_layer(self, device_type)

    def lift(self) -> None:
        """Take it off again."""
        for device_type in _DEVICE_TYPES:
            shim.remove_layer(self, device_type)


@contextmanager
def entered(layer: ScopedLayer) -> Iterator[None]:
    """Let ``layer`` act in this thread inside of the block; of nested blocks the innermost holds."""
    outer: tuple[ScopedLayer, ...] = getattr(_local, "entered", ())
    _local.entered = (*outer, layer)
    try:
        yield
    finally:
        _local.entered = outer
