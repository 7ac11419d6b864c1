"""Facts of the machine, each with its source, read from files alone.

No torch, no GPU and no program is touched: what this room reads it reads where the stack is
broken, too. Every reader works on a tree, so a recorded ``/`` is as good as the real one.
"""

from rocmprobe.detect.machine import detect

__all__ = ["detect"]
