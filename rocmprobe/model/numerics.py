"""Rules for correct results: the exact tier, the float tier and the bound of each element.

- Exact tier: the operands are integers whose sums are exact, so the result must equal the reference (as in
  oneDNN's benchdnn).
- Float tier: two error measures against an fp64 reference.
- Bound: the largest possible error of each element, for any order of summation.

Limits come from ``data/limits.toml``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from rocmprobe.text.tables import table

#: Numerical guarantee of a kernel. ``SUMS``: the kernel adds all products in one accumulator. ``PARTS``: the
#: kernel rounds partial sums to the result's dtype before it adds them. PyTorch's own kernels are ``PARTS``
#: in half precision, with one partial sum per filter tap or per sample of the batch. ``TRANSFORMS``: the
#: library can choose Winograd, FFT or a GEMM that rounds partial sums.
SUMS, PARTS, TRANSFORMS = "plain sums", "sums in parts", "transforms allowed"
#: Assumed largest magnitude of a sum of random terms, divided by the root mean square of such sums. Only a
#: few sums in a billion are larger.
_SPREAD = 6
#: Integers in a ``CancellingFill``. Float16 cannot represent products such as 129 * 31 exactly, but every
#: operand is exact in bfloat16.
_BASE, _LARGEST_FACTOR = 128, 16
#: Root mean square of the difference of two random integers of magnitude 1 to ``_LARGEST_FACTOR``.
_FACTOR_RMS = 13.7
#: Limits, by dtype, for layers and operators other than convolution. A limit is the largest deviation of a
#: correct result from fp64, divided by the largest value of the reference (at least the check's ``least``).
#: benchmarks/results/false_alarms.md gives the largest share of each limit that correct results reach.
LAYER_LIMITS: Mapping[str, float] = {
    "float32": 1e-4,
    "float16": 2e-2,
    "bfloat16": 1.5e-1,
    # The reference has the same dtype, so this limit only allows for a different summation order.
    "float64": 1e-10,
}
#: Limits of batch norm in training, from the same measurement. The float16 limit must detect the bias of 1 %
#: that MIOpen before 3.6.0 had in the gradient in NCHW.
BATCH_NORM_LIMITS: Mapping[str, float] = {**LAYER_LIMITS, "float16": 3e-3}


def unit_roundoff(dtype: str) -> float:
    """Return u, the largest relative error of rounding to nearest in ``dtype``."""
    return math.ldexp(1.0, -table("limits")[dtype]["mantissa_bits"])


def accumulator(dtype: str) -> str:
    """Return the dtype in which a correct kernel sums products of ``dtype``."""
    return str(table("limits")[dtype]["accumulator"])


def limit(measure: str, dtype: str, terms: int, guarantee: str = SUMS, parts: int = 1) -> float:
    """Return the limit of ``measure`` ("rms_range" or "max_ratio") for sums of ``terms`` products.

    ``guarantee`` is ``SUMS``, ``PARTS`` or ``TRANSFORMS``. ``SUMS`` and ``PARTS`` have the same limit.
    ``TRANSFORMS`` allows Winograd and FFT, so its limit is larger. In float16, these kernels also round
    transformed operands, and the inverse transform enlarges these errors. ``parts`` is the number of partial
    sums that the kernel rounds to ``dtype``.
    """
    factors, u_result = table("limits")[dtype][measure], unit_roundoff(dtype)
    transforms = table("limits")["transforms"] if guarantee == TRANSFORMS else {}
    growth = transforms.get("growth", 1)
    summation = growth * unit_roundoff(accumulator(dtype)) * math.sqrt(terms)
    if parts > 1:
        summation += u_result * math.sqrt(parts)
    rounding = transforms.get(dtype, 1) * u_result
    return _short(factors["result_rounding"] * rounding + factors["summation"] * summation, 2)


def _short(value: float, digits: int) -> float:
    """Return ``value`` rounded to ``digits`` significant digits."""
    return float(f"{value:.{digits}g}")


def error_bound(dtype: str, terms: int, parts: int = 1) -> tuple[float, float, float]:
    """Return a, b and c of an error bound that holds for every order of summation.

    The bound is |error| <= a * (|w| * |x|) + b * |reference| + c, where |w| * |x| is the convolution of the
    operands' absolute values.

    Let u be the accumulator's unit roundoff, v the unit roundoff of ``dtype``, and gamma(n, u) = n u / (1 - n
    u). Then a = gamma(``terms`` + 1, u) * (1 + v). If ``parts`` > 1, gamma(``parts`` + 1, v) is added to a.
    If no bound exists, a is infinite. Source: Higham, Accuracy and Stability of Numerical Algorithms, 2002,
    section 3.1.

    The bound does not hold for kernels with the guarantee ``TRANSFORMS``, e.g. Winograd or FFT.
    """
    u, u_result = unit_roundoff(accumulator(dtype)), unit_roundoff(dtype)
    a = _gamma(terms + 1, u) * (1 + u_result)
    if parts > 1:
        # The kernel rounds every partial sum, and every sum of partial sums.
        a += _gamma(parts + 1, u_result)
    return a, u_result, float(table("limits")[dtype]["smallest"]) * parts


def _gamma(operations: int, u: float) -> float:
    return operations * u / (1 - operations * u) if operations * u < 1 else math.inf


def ulp(value: float, dtype: str) -> float:
    """Return the distance between ``value`` and the next larger number of ``dtype``."""
    row = table("limits")[dtype]
    spacing = math.ldexp(1.0, math.frexp(value)[1] - row["mantissa_bits"]) if value else 0.0
    return max(spacing, float(row["smallest"]))


@dataclass(frozen=True)
class ExactFill:
    """A fill of both operands with integers of magnitude 1 to ``largest``.

    In one operand, only the fraction ``density`` of the elements is nonzero.
    """

    largest: int
    density: float


def _largest_sum(dtype: str) -> int:
    """Return the largest n for which ``dtype`` represents all integers from 0 to n."""
    return int(1 / unit_roundoff(dtype))


def exact_fill(dtype: str, terms: int, guarantee: str = SUMS) -> ExactFill:
    """Return a fill whose partial sums of ``terms`` products are exact in the accumulator.

    A few results in 1e9 are too large to be exact in ``dtype``. The caller must ignore these results. For
    ``TRANSFORMS``, the caller must round results to integers.
    """
    room = _largest_sum(accumulator(dtype))
    held = _largest_sum(dtype) / _SPREAD
    if guarantee == TRANSFORMS:
        held = min(held, 0.5 / limit("max_ratio", dtype, terms, guarantee) / _SPREAD)
    for largest in (16, 8, 4, 2, 1):
        mean_square = (largest + 1) * (2 * largest + 1) / 6
        if terms * largest**2 <= room and math.sqrt(terms) * mean_square <= held:
            return ExactFill(largest, 1.0)
    return ExactFill(1, _short(min(1.0, room / terms, held**2 / terms), 4))


@dataclass(frozen=True)
class CancellingFill:
    """A fill with large products and small results.

    Each element of one operand is ``base`` plus -1, 0 or 1. The fraction ``density`` of these elements
    differs from ``base``. Each element of the second operand is the difference of two integers of magnitude 1
    to ``largest``. The second operand sums to zero along axes over which the convolution sums, so ``base``
    cancels.
    """

    base: int
    largest: int
    density: float


def cancelling_fill(dtype: str, terms: int) -> CancellingFill:
    """Return a fill for which sums in half precision are wrong.

    A few results in 1e9 are too large to be exact in ``dtype``. The caller must ignore these results.
    """
    held = _largest_sum(dtype) / (_SPREAD * _FACTOR_RMS)
    return CancellingFill(_BASE, _LARGEST_FACTOR, _short(min(1.0, held**2 / terms), 4))


#: Largest factor between an element of the input and an element that Winograd F(6x6, 3x3) computes from the
#: input: the square of 1 + 21/4 + 21/4 + 1. Source: Lavin and Gray, 2016, arXiv:1509.09308, and the transform
#: of Caffe2 and NNPACK with the points 0, 1, -1, 2, -2, 1/2, -1/2.
_INPUT_GROWTH = 156.25
#: Factor between uniform operands and large operands.
_LARGE = 1024


def large_scale(dtype: str, terms: int, guarantee: str = SUMS) -> float:
    """Return a power of two, at most 1024, to multiply one uniform operand by.

    Results do not overflow in ``dtype``. For ``TRANSFORMS``, transformed operands do not overflow either.
    """
    largest = table("limits")[dtype].get("largest", math.inf)
    # A sum of uniform numbers, such as the gradient of the bias, is larger than a sum of their products.
    room = largest / (_SPREAD * math.sqrt(terms / 3))
    if guarantee == TRANSFORMS:
        room = min(room, largest / _INPUT_GROWTH)
    return 2.0 ** math.floor(math.log2(max(1.0, min(room, _LARGE))))


@dataclass(frozen=True)
class Errors:
    """Errors of a result with ``count`` elements, compared with the reference.

    - ``rms_range``: root mean square of the error, divided by the largest value in result and reference
    - ``max_ratio``: largest error, divided by the largest value of the reference
    - ``non_finite``: number of elements that are finite only in the reference
    - ``constant``: True if all elements are equal in the result but not in the reference
    - ``bound_ratio``: largest ratio of an element's error to its ``error_bound``, or None if not measured
    """

    count: int
    rms_range: float
    max_ratio: float
    max_result: float
    max_reference: float
    non_finite: int
    constant: bool = False
    bound_ratio: Optional[float] = None


def relative_error(error: float, scale: float) -> float:
    """Return ``error / scale``. For ``scale`` 0, return 0 if ``error`` is 0, else 1."""
    return error / scale if scale else float(error > 0)


def float_limits(dtype: str, terms: int, guarantee: str = SUMS, parts: int = 1) -> dict[str, float]:
    """Return the limits of "rms_range" and "max_ratio" (see ``limit``)."""
    return {name: limit(name, dtype, terms, guarantee, parts) for name in ("rms_range", "max_ratio")}


def judge_float(
    errors: Errors, dtype: str, terms: int, guarantee: str = SUMS, parts: int = 1
) -> tuple[bool, dict[str, Any], str]:
    """Return the verdict of the float tier as a tuple (passed, numbers, reason).

    - ``passed``: True if all errors are within their limits
    - ``numbers``: the measures and their limits
    - ``reason``: the reason for a failure, or ""

    The result also fails if an element is finite only in the reference. It also fails if all its elements
    are zero or equal, but the elements of the reference are not. See ``limit`` for the parameters.
    """
    limits = float_limits(dtype, terms, guarantee, parts)
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
        over = (
            f"an error is {errors.bound_ratio:.2g} times the largest rounding error in {accumulator(dtype)}"
        )
        return False, numbers, over
    return True, numbers, ""


def miopen_rule(errors: Errors, dtype: str, direction: str, transposed: bool) -> Optional[str]:
    """Judge ``errors`` by the tolerances of MIOpen's test program.

    Return None if MIOpen has no tolerance for ``dtype``. Otherwise return "passes",
    "passes as implicit GEMM" (with 10 times the tolerance) or "fails".
    """
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
