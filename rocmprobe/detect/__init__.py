"""Facts about the machine, each with its source, read without importing torch in this process.

The readers work even if the ROCm installation is broken. They read files through a ``Tree``, so a recorded
copy of ``/`` works like the real one. On the real machine, ROCm's tools run as well, and the MIOpen library
reports its version. Each of these runs in a separate process with a time limit.
"""

from rocmprobe.detect.machine import detect
from rocmprobe.detect.stack.deep import ask_torch
from rocmprobe.detect.stack.torch_build import Python

__all__ = ["Python", "ask_torch", "detect"]
