"""In which precision a network trains: a dtype of its own, or fp32 under autocast with a GradScaler."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from rocmprobe.checks.tools.failures import NotApplicable

#: The loss times this stays far inside float16, and small gradients rise above its smallest numbers.
_LOSS_SCALE = 2.0**8


@dataclass(frozen=True)
class Precision:
    """The dtype of weights and data, the context of the forward pass, and what scales the loss."""

    dtype: Any
    autocast: Callable[[], AbstractContextManager[Any]]
    scaler: Any


def plain(dtype: Any) -> Precision:
    """All in ``dtype``, the loss as it is."""
    return Precision(dtype, nullcontext, _scaler("cpu", enabled=False))


def autocast(kind: str, dtype: Any) -> Precision:
    """fp32 under autocast to ``dtype`` on a device of type ``kind``, the loss scaled.

    Raises NotApplicable where this torch has no such autocast.
    """
    import torch

    if kind == "cpu" and dtype == torch.float16 and not hasattr(torch.amp, "GradScaler"):
        raise NotApplicable(f"torch {torch.__version__} has no autocast to float16 on a CPU")
    return Precision(torch.float32, lambda: torch.autocast(kind, dtype=dtype), _scaler(kind, enabled=True))


def _scaler(kind: str, enabled: bool) -> Any:
    """torch's GradScaler; never enabled on a CPU where a torch has it for GPUs alone."""
    import torch

    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(kind, init_scale=_LOSS_SCALE, enabled=enabled)
    return torch.cuda.amp.GradScaler(init_scale=_LOSS_SCALE, enabled=enabled and kind == "cuda")
