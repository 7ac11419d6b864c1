"""Facts of the machine, each with its source, read without importing torch in this process.

The readers work even if the stack is broken. Every reader works on a tree, so a recorded ``/`` is as good as
the real one. On this machine, ROCm's tools (if installed) run as well, and MIOpen reports its version. Each
runs in its own process with a time limit.
"""

from rocmprobe.detect.machine import detect
from rocmprobe.detect.stack.deep import ask_torch
from rocmprobe.detect.stack.torch_build import Python

__all__ = ["Python", "ask_torch", "detect"]
