"""Precision in which a network trains: one dtype, or fp32 under autocast with a GradScaler."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocmprobe.checks.tools.failures import NotApplicable

if TYPE_CHECKING:
    import torch

#: Initial scale of the loss. With it, the loss is far below float16's largest number, and small gradients are
#: above float16's smallest number.
_LOSS_SCALE = 2.0**8


@dataclass(frozen=True)
class Precision:
    """Dtype of weights and data, context of the forward pass, and GradScaler."""

    dtype: torch.dtype
    autocast: Callable[[], AbstractContextManager[object]]
    scaler: Any


def plain(dtype: torch.dtype) -> Precision:
    """Return the precision for training in ``dtype`` without loss scaling."""
    return Precision(dtype, nullcontext, _scaler("cpu", enabled=False))


def autocast(kind: str, dtype: torch.dtype) -> Precision:
    """Return the precision for training in fp32 under autocast to ``dtype``, with loss scaling.

    ``kind`` is the device type. Raise NotApplicable if this torch does not support autocast to ``dtype``.
    """
    import torch

    if kind == "cpu" and dtype == torch.float16 and not hasattr(torch.amp, "GradScaler"):
        raise NotApplicable(f"torch {torch.__version__} has no autocast to float16 on a CPU")
    return Precision(torch.float32, lambda: torch.autocast(kind, dtype=dtype), _scaler(kind, enabled=True))


def _scaler(kind: str, enabled: bool) -> Any:
    """Return torch's GradScaler, disabled on a CPU if this torch scales losses only on GPUs."""
    import torch

    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(kind, init_scale=_LOSS_SCALE, enabled=enabled)
    return torch.cuda.amp.GradScaler(init_scale=_LOSS_SCALE, enabled=enabled and kind == "cuda")
