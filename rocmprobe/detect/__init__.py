"""Readers that return facts about this machine or about a recorded copy of ``/``.

This process does not import torch.
"""

from rocmprobe.detect.machine import detect
from rocmprobe.detect.stack.deep import query_torch

__all__ = ["detect", "query_torch"]
