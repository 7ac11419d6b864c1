"""Readers that return facts about this machine or about a recorded copy of ``/``.

This process does not import torch.
"""

from rocmprobe.detect.machine import detect
from rocmprobe.detect.stack.deep import query_torch
from rocmprobe.detect.stack.torch_build import Python

__all__ = ["Python", "detect", "query_torch"]
