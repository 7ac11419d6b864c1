"""When is a result right: the exact tier, the float tier and the bound of each element.

Exact tier: integers whose sums are exact in every order, so equality is demanded and a single lost term
shows (the rule of oneDNN's benchdnn); a plain fill, and a cancelling one whose partial sums are large and
whose results are small, which a kernel that sums in half precision gets wrong. Float tier: two error measures
against an fp64 reference. Bound: what no summation of plain products can exceed, element by element.
Limits are those of ``data/limits.toml``. Pure: works on numbers that a driver measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from rocmprobe.text.tables import table

#: What a kernel owes, by how it sums. ``SUMS``: plain products in one accumulator. ``PARTS``: the same, but
#: parts of a sum are rounded to the result's dtype before they are added up, as PyTorch's own kernels do in
#: half precision (a tap of the kernel, a sample of the batch). ``TRANSFORMS``: Winograd or FFT may be chosen,
#: or a GEMM that rounds parts.
SUMS, PARTS, TRANSFORMS = "plain sums", "sums in parts", "transforms allowed"
#: A sum of random terms, and what it comes to on the way, stays within this many times its root mean square,
#: all but a few in a thousand million.
_SPREAD = 6
#: Integers of the cancelling fill: each product is beyond what float16 holds exactly, and the operand still
#: is a number of bfloat16.
_BASE, _LARGEST_FACTOR = 128, 16
#: Root mean square of the difference of two integers of magnitude 1 to ``_LARGEST_FACTOR``.
_FACTOR_RMS = 13.7
#: Largest deviation from fp64 that a right layer or operator besides convolution may show, by its dtype, as
#: a share of the reference's largest value, or of the check's ``least`` where that is smaller. Basis:
#: benchmarks/results/layer_limits.json; each limit is over five times what is measured there.
LAYER_LIMITS: Mapping[str, float] = {
    "float32": 1e-4,
    "float16": 2e-2,
    "bfloat16": 1.5e-1,
    # The reference's own dtype: room for a sum in another order.
    "float64": 1e-10,
}
#: Limits of batch norm in training. MIOpen before 3.6.0 biased its gradient in NCHW by 1 %, which float16
#: must show, too. Basis: the same measurement.
BATCH_NORM_LIMITS: Mapping[str, float] = {**LAYER_LIMITS, "float16": 3e-3}


def unit_roundoff(dtype: str) -> float:
    """u: the largest relative error of rounding to nearest in ``dtype``."""
    return math.ldexp(1.0, -table("limits")[dtype]["mantissa_bits"])


def accumulator(dtype: str) -> str:
    """The dtype in which a right kernel sums products of ``dtype``."""
    return str(table("limits")[dtype]["accumulator"])


def limit(measure: str, dtype: str, terms: int, owed: str = SUMS, parts: int = 1) -> float:
    """The limit of ``measure`` ("rms_range", "max_ratio") for sums of ``terms`` products, by what the kernel
    owes; ``parts`` of a sum are rounded to the dtype before they are added up."""
    factors, u_result = table("limits")[dtype][measure], unit_roundoff(dtype)
    growth = table("limits")["transforms"]["growth"] if owed == TRANSFORMS else 1
    summation = growth * unit_roundoff(accumulator(dtype)) * math.sqrt(terms)
    if parts > 1:
        summation += u_result * math.sqrt(parts)
    return _short(factors["result_rounding"] * u_result + factors["summation"] * summation, 2)


def _short(value: float, digits: int) -> float:
    """``value`` as it is shown to people, so that they can compute with the same."""
    return float(f"{value:.{digits}g}")


def error_bound(dtype: str, terms: int, parts: int = 1) -> tuple[float, float, float]:
    """Factors a, b and the constant c of what no order of summation exceeds: |error| <= a * (|w| * |x|) +
    b * |reference| + c, where |w| * |x| is the convolution of the operands' magnitudes.

    a is gamma of ``terms`` products and a bias in the accumulator, and of ``parts`` in the dtype where there
    are several (gamma: Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1); b and c
    are the rounding of the result. Infinite where there are so many that nothing is excluded. Not for
    transforms.
    """
    u, u_result = unit_roundoff(accumulator(dtype)), unit_roundoff(dtype)
    a = _gamma(terms + 1, u) * (1 + u_result)
    if parts > 1:
        # Each part is rounded, and so is each of their sums.
        a += _gamma(parts + 1, u_result)
    return a, u_result, float(table("limits")[dtype]["smallest"]) * parts


def _gamma(operations: int, u: float) -> float:
    return operations * u / (1 - operations * u) if operations * u < 1 else math.inf


def ulp(value: float, dtype: str) -> float:
    """The distance of neighbouring numbers of ``dtype`` at ``value``."""
    row = table("limits")[dtype]
    spacing = math.ldexp(1.0, math.frexp(value)[1] - row["mantissa_bits"]) if value else 0.0
    return max(spacing, float(row["smallest"]))


@dataclass(frozen=True)
class ExactFill:
    """Integers of magnitude 1 to ``largest`` in both operands; the share ``density`` of the one that a
    direction sums over is not zero."""

    largest: int
    density: float


def _largest_sum(dtype: str) -> int:
    """Every integer up to this is a number of ``dtype``."""
    return int(1 / unit_roundoff(dtype))


def exact_fill(dtype: str, terms: int, owed: str = SUMS) -> ExactFill:
    """A fill whose every partial sum of ``terms`` products is exact in the accumulator, and whose results
    fit into ``dtype``, all but a few in a thousand million: those a comparison leaves out.

    Where transforms are allowed, results are so small that the float tier leaves less than a half of an
    error: there the nearest integer is owed.
    """
    room = _largest_sum(accumulator(dtype))
    held = _largest_sum(dtype) / _SPREAD
    if owed == TRANSFORMS:
        held = min(held, 0.5 / limit("max_ratio", dtype, terms, owed) / _SPREAD)
    for largest in (16, 8, 4, 2, 1):
        mean_square = (largest + 1) * (2 * largest + 1) / 6
        if terms * largest**2 <= room and math.sqrt(terms) * mean_square <= held:
            return ExactFill(largest, 1.0)
    return ExactFill(1, _short(min(1.0, room / terms, held**2 / terms), 4))


@dataclass(frozen=True)
class CancellingFill:
    """One operand is ``base`` plus -1, 0 or 1, the share ``density`` of them not zero. The other sums to zero
    over what a direction sums: each of its values is the difference of two integers of magnitude 1 to
    ``largest``. The base cancels, and what is left is small."""

    base: int
    largest: int
    density: float


def cancelling_fill(dtype: str, terms: int) -> CancellingFill:
    """A fill whose results fit into ``dtype``, as those of ``exact_fill`` do, and whose products do not sum
    exactly in half precision."""
    held = _largest_sum(dtype) / (_SPREAD * _FACTOR_RMS)
    return CancellingFill(_BASE, _LARGEST_FACTOR, _short(min(1.0, held**2 / terms), 4))


@dataclass(frozen=True)
class Errors:
    """What a driver measured of a result against its reference; ``count`` elements.

    ``rms_range`` is the root mean square of the error as a share of the largest value of both, ``max_ratio``
    the largest error as a share of the reference's largest value. ``non_finite`` counts elements that are not
    finite where the reference is; ``constant`` says that all elements are equal and those of the reference
    are not; ``bound_ratio`` is the largest error as a share of ``error_bound``, where that was measured.
    """

    count: int
    rms_range: float
    max_ratio: float
    max_result: float
    max_reference: float
    non_finite: int
    constant: bool = False
    bound_ratio: Optional[float] = None


def share(error: float, scale: float) -> float:
    """Return ``error`` as a share of ``scale``. Where the scale is zero, any error is a whole one."""
    return error / scale if scale else float(error > 0)


def float_limits(dtype: str, terms: int, owed: str = SUMS, parts: int = 1) -> dict[str, float]:
    """Return the limits of the float tier, keyed by measure."""
    return {name: limit(name, dtype, terms, owed, parts) for name in ("rms_range", "max_ratio")}


def judge_float(
    errors: Errors, dtype: str, terms: int, owed: str = SUMS, parts: int = 1
) -> tuple[bool, dict[str, Any], str]:
    """Whether the float tier holds (see ``limit``), the measures beside their limits, and the line that says
    why not.

    An empty result is right; one that is all zero, constant or not finite where the reference is not, never.
    """
    limits = float_limits(dtype, terms, owed, parts)
    numbers: dict[str, Any] = {
        "rms_range": errors.rms_range,
        "rms_range_limit": limits["rms_range"],
        "max_ratio": errors.max_ratio,
        "max_ratio_limit": limits["max_ratio"],
        "non_finite": errors.non_finite,
    }
    if errors.bound_ratio is not None:
        numbers["bound_ratio"] = errors.bound_ratio
    if errors.non_finite:
        return False, numbers, f"{errors.non_finite} of {errors.count} elements are not finite"
    if errors.max_reference and not errors.max_result:
        return False, numbers, "the result is all zero, the reference is not"
    if errors.constant:
        return False, numbers, "all elements of the result are equal, those of the reference are not"
    for name, largest in limits.items():
        if not numbers[name] <= largest:
            over = f"the limit for sums of {terms} in {dtype} is {largest:.2g}"
            return False, numbers, f"{name} is {numbers[name]:.2g}, {over}"
    if errors.bound_ratio is not None and not errors.bound_ratio <= 1:
        over = f"an error is {errors.bound_ratio:.2g} times what rounding in {accumulator(dtype)} can cause"
        return False, numbers, over
    return True, numbers, ""


def miopen_rule(errors: Errors, dtype: str, direction: str, transposed: bool) -> Optional[str]:
    """What MIOpen's own test program would say: "passes", "passes as implicit GEMM" or "fails"; None for a
    dtype that it has no rule for."""
    tolerances = table("limits")["miopen"].get(dtype)
    if tolerances is None:
        return None
    turned = transposed and direction == "bwd-weights"
    tolerance = tolerances["transposed-bwd-weights" if turned else direction]
    if errors.non_finite or (errors.max_reference and not errors.max_result):
        return "fails"
    if errors.rms_range <= tolerance:
        return "passes"
    return "passes as implicit GEMM" if errors.rms_range <= 10 * tolerance else "fails"
