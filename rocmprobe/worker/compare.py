"""Measuring a result against its reference, with torch, on the CPU, in fp64."""

from __future__ import annotations

from typing import Any

from rocmprobe.numerics import Errors


def errors(result: Any, reference: Any) -> Errors:
    """Errors of ``result`` (any dtype, any device) against ``reference`` (CPU, fp64, same shape).

    Raises ValueError where the shapes differ.
    """
    import torch

    if tuple(result.shape) != tuple(reference.shape):
        raise ValueError(f"shape {tuple(result.shape)} instead of {tuple(reference.shape)}")
    actual = result.detach().to("cpu", torch.float64)
    if not actual.numel():
        return Errors(0, 0.0, 0.0, 0.0, 0.0, 0)
    broken = ~torch.isfinite(actual) & torch.isfinite(reference)
    usable = torch.where(broken, torch.zeros_like(actual), actual)
    difference = (usable - reference).abs()
    return Errors(
        count=actual.numel(),
        squared_error=float((difference * difference).sum()),
        max_error=float(difference.max()),
        max_result=float(usable.abs().max()),
        max_reference=float(reference.abs().max()),
        non_finite=int(broken.sum()),
    )


def unequal(result: Any, reference: Any) -> int:
    """How many elements of ``result`` differ from an exact ``reference`` (CPU, fp64).

    Elements whose reference the result's dtype cannot hold are left out.
    """
    import torch

    holds = reference.to(result.dtype).to(torch.float64) == reference
    actual = result.detach().to("cpu", torch.float64)
    return int(((actual != reference) & holds).sum())
