"""Facts of the machine, each with its source, without importing torch here.

What this room reads it reads where the stack is broken, too. Every reader works on a tree, so a recorded
``/`` is as good as the real one. On the own machine ROCm's tools, where they are installed, are run as
well, and MIOpen for its version: each in a process of its own with a limit.
"""

from rocmprobe.detect.machine import detect
from rocmprobe.detect.stack.deep import ask_torch
from rocmprobe.detect.stack.torch_build import Python

__all__ = ["Python", "ask_torch", "detect"]
