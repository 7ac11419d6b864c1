"""Readers that return facts about the machine. This process does not import torch.

The readers work even if the ROCm installation is broken. They read files through a ``Tree``, so they can also
read a recorded copy of ``/``.
"""

from rocmprobe.detect.machine import detect
from rocmprobe.detect.stack.deep import query_torch
from rocmprobe.detect.stack.torch_build import Python

__all__ = ["Python", "detect", "query_torch"]
