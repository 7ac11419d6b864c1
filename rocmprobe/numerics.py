"""When is a result right: the exact tier and the float tier.

Exact tier: small integers whose every partial sum is representable, so equality is demanded and a
single lost term shows (the rule of oneDNN's benchdnn). Float tier: two error measures against an
fp64 reference, limits from ``data/limits.toml``. Pure: works on numbers that a driver measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from rocmprobe._toml import tomllib


@lru_cache(maxsize=1)
def _limits() -> dict[str, dict[str, float]]:
    text = resources.files("rocmprobe").joinpath("data/limits.toml").read_text("utf-8")
    return tomllib.loads(text)


@dataclass(frozen=True)
class ExactFill:
    """Integers in [-input_max, input_max] and [-weight_max, weight_max]; the share ``density`` of the
    input is non-zero."""

    input_max: int
    weight_max: int
    density: float


def exact_fill(dtype: str, terms: int) -> ExactFill:
    """A fill for sums of ``terms`` products whose partial sums stay representable in ``dtype``.

    The expected count of non-zero products is held at half of what could overflow the mantissa.
    """
    room = int(_limits()[dtype]["exact_sum"])
    input_max, weight_max = (4, 2) if room >= 2048 else (1, 1)
    products = room // (2 * input_max * weight_max)
    return ExactFill(input_max, weight_max, min(1.0, products / max(1, terms)))


@dataclass(frozen=True)
class Errors:
    """What a driver measured of a result against its reference; ``count`` elements.

    ``squared_error`` is a sum; the other magnitudes are maxima. ``non_finite`` counts elements that
    are not finite where the reference is.
    """

    count: int
    squared_error: float
    max_error: float
    max_result: float
    max_reference: float
    non_finite: int


def judge_float(errors: Errors, dtype: str) -> tuple[bool, dict[str, Any], str]:
    """Whether the float tier holds, the measures beside their limits, and the line that says why not.

    An empty result is right; a result that is all zero or not finite where the reference is not,
    never.
    """
    limits = _limits()[dtype]
    scale = max(errors.max_result, errors.max_reference)
    rms_range = (
        math.sqrt(errors.squared_error) / (math.sqrt(errors.count) * scale) if errors.count and scale else 0.0
    )
    max_ratio = (
        errors.max_error / errors.max_reference if errors.max_reference else float(errors.max_error > 0)
    )
    numbers: dict[str, Any] = {
        "rms_range": rms_range,
        "rms_range_limit": limits["rms_range"],
        "max_ratio": max_ratio,
        "max_ratio_limit": limits["max_ratio"],
        "non_finite": errors.non_finite,
    }
    if errors.non_finite:
        return False, numbers, f"{errors.non_finite} of {errors.count} elements are not finite"
    if errors.max_reference and not errors.max_result:
        return False, numbers, "the result is all zero, the reference is not"
    for name in ("rms_range", "max_ratio"):
        if not numbers[name] <= limits[name]:
            return (
                False,
                numbers,
                f"{name} is {numbers[name]:.2g}, the limit for {dtype} is {limits[name]:.2g}",
            )
    return True, numbers, ""
