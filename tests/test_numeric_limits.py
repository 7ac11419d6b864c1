"""The two tiers of numerics: faults of a real size are caught, right results pass."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.checks.tools.compare import bad_elements, errors
from rocmprobe.checks.tools.computation import differing, unequal, whole_numbers
from rocmprobe.model.numerics import (
    TRANSFORMS,
    Errors,
    cancelling_fill,
    error_bound,
    exact_fill,
    judge_float,
    limit,
    miopen_rule,
    ulp,
)

torch = pytest.importorskip("torch")

TERMS = (27, 576, 4608)
DTYPES = ("float32", "float16", "bfloat16")
ROWS, COLUMNS = 256, 64
EXACT_SUMS = {"float64": 2**53, "float32": 2**24, "float16": 2**11, "bfloat16": 2**8}


def operands(terms, dtype, seed=0):
    """Uniform operands, rounded to the dtype, and their product in fp64."""
    generator = torch.Generator().manual_seed(seed)

    def values(*shape):
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
        return drawn.to(getattr(torch, dtype)).to(torch.float64)

    return values(ROWS, terms), values(terms, COLUMNS)


def integers(terms, dtype, seed=0):
    fill = exact_fill(dtype, terms)
    generator = torch.Generator().manual_seed(seed)
    left = whole_numbers((ROWS, terms), fill.largest, fill.density, generator)
    return left, whole_numbers((terms, COLUMNS), fill.largest, 1.0, generator)


def cancelling_integers(terms, dtype, seed=0):
    fill = cancelling_fill(dtype, terms)
    generator = torch.Generator().manual_seed(seed)
    left = fill.base + whole_numbers((ROWS, terms), 1, fill.density, generator)
    right = whole_numbers((terms, COLUMNS), fill.largest, 1.0, generator)
    return left, right - right.flip(0)


def in_the_dtype_itself(left, right, dtype):
    kind = getattr(torch, dtype)
    running = torch.zeros(ROWS, COLUMNS, dtype=kind)
    for term in range(left.shape[1]):
        running = running + left[:, term : term + 1].to(kind) * right[term : term + 1].to(kind)
    return running


def lost_term(left, right, result):
    return result - left[:, 5:6] * right[5:6, :]


def zero_row(left, right, result):
    result[7] = 0
    return result


def doubled_tile(left, right, result):
    result[16:32, 16:32] *= 2
    return result


def one_nan(left, right, result):
    result[3, 4] = math.nan
    return result


def one_infinity(left, right, result):
    result[3, 4] = -math.inf
    return result


def all_zero(left, right, result):
    return result * 0


def swapped_rows(left, right, result):
    return result[torch.arange(ROWS) ^ 1]


FAULTS = (lost_term, zero_row, doubled_tile, one_nan, one_infinity, all_zero, swapped_rows)


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault, dtype, terms):
    if (fault, dtype, terms) == (lost_term, "bfloat16", 4608):
        return  # below the rounding of bfloat16: the exact tier's task, tested below
    left, right = operands(terms, dtype)
    reference = left @ right
    result = fault(left, right, reference.clone()).to(getattr(torch, dtype))
    right_result, numbers, why = judge_float(errors(result, reference), dtype, terms)
    assert not right_result
    assert why
    assert set(numbers) == {"rms_range", "rms_range_limit", "max_ratio", "max_ratio_limit", "non_finite"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_result_that_does_not_vary_is_wrong(dtype):
    left, right = operands(27, dtype)
    constant = torch.full((ROWS, COLUMNS), float((left @ right).mean()), dtype=getattr(torch, dtype))
    right_result, _, why = judge_float(errors(constant, left @ right), dtype, 27)
    assert (right_result, why[:12]) == (False, "all elements")


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(4))
def test_a_right_result_with_float32_accumulation_passes(dtype, terms, seed):
    left, right = operands(terms, dtype, seed)
    result = (left.float() @ right.float()).to(getattr(torch, dtype))
    a, b, c = error_bound(dtype, terms)
    bound = a * (left.abs() @ right.abs()) + b * (left @ right).abs() + c
    held, numbers, why = judge_float(errors(result, left @ right, bound), dtype, terms)
    assert held, why
    # A limit near what right kernels reach would fail some device's honest order of summation.
    assert numbers["rms_range"] < numbers["rms_range_limit"] / 3
    assert numbers["max_ratio"] < numbers["max_ratio_limit"] / 3


def winograd_in_float16(image, filters, points):
    """Convolve tiles with 3x3 filters, with transformed operands in float16 and sums in float32.

    The transforms follow from the points and infinity (Toom-Cook). The tile is as large as the image.
    """
    side = len(points) + 1

    def powers(columns):
        rows = [[point**power for power in range(columns)] for point in points]
        return torch.tensor([*rows, [0] * (columns - 1) + [1]], dtype=torch.float64)

    factors = [math.prod(one - other for other in points if other != one) for one in points]
    scale = torch.tensor([*factors, 1.0], dtype=torch.float64)[:, None]
    inverse, of_filter = powers(side - 2).T, powers(3) / scale
    of_image = torch.linalg.inv(powers(side)).T * scale
    filters = (of_filter @ filters @ of_filter.T).half().float()
    image = (of_image @ image @ of_image.T).half().float()
    products = torch.einsum("kcij,bcij->bkij", filters, image).double()
    return (inverse @ products @ inverse.T).half()


@pytest.mark.parametrize("channels", [3, 64, 512])
@pytest.mark.parametrize("points", [(0, 1, -1), (0, 1, -1, 2, -2), (0, 1, -1, 2, -2, 0.5, -0.5)])
def test_winograd_in_float16_passes_if_transforms_are_allowed(points, channels):
    generator = torch.Generator().manual_seed(0)
    side = len(points) + 1

    def values(*shape):
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
        return drawn.half().double()

    image, filters = values(32, channels, side, side), values(16, channels, 3, 3)
    measured = errors(winograd_in_float16(image, filters, points), torch.nn.functional.conv2d(image, filters))
    assert judge_float(measured, "float16", 9 * channels, TRANSFORMS)[0]
    assert len(points) < 5 or not judge_float(measured, "float16", 9 * channels)[0]


class TestExactTier:
    @pytest.mark.parametrize("terms", TERMS)
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_a_right_result_is_equal_in_any_order_of_summation(self, dtype, terms):
        left, right = integers(terms, dtype)
        order = torch.randperm(terms, generator=torch.Generator().manual_seed(1))
        kind = getattr(torch, dtype)
        shuffled = (left[:, order].to(kind).float() @ right[order].to(kind).float()).to(kind)
        assert unequal(shuffled, left @ right) == 0

        # One lost term shows.
        left, right = integers(terms, dtype)
        result = lost_term(left, right, left @ right).to(getattr(torch, dtype))
        assert unequal(result, left @ right) > 0

        # The cancelling fill is exact in any order too.
        left, right = cancelling_integers(terms, dtype)
        order = torch.randperm(terms, generator=torch.Generator().manual_seed(1))
        shuffled = (left[:, order].float() @ right[order].float()).to(getattr(torch, dtype))
        assert unequal(shuffled, left @ right) == 0
        assert (left @ right).abs().max() < EXACT_SUMS[dtype]


@pytest.mark.parametrize("terms", [27, 144, 576])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_summing_in_half_precision_shows_under_the_cancelling_fill_and_by_the_bound(dtype, terms):
    left, right = cancelling_integers(terms, dtype)
    assert unequal(in_the_dtype_itself(left, right, dtype), left @ right) > 0
    left, right = operands(terms, dtype)
    a, b, c = error_bound(dtype, terms)
    bound = a * (left.abs() @ right.abs()) + b * (left @ right).abs() + c
    assert errors(in_the_dtype_itself(left, right, dtype), left @ right, bound).bound_ratio > 1


def test_the_float_tier_alone_would_miss_a_lost_term_in_bfloat16():
    left, right = operands(4608, "bfloat16")
    result = lost_term(left, right, left @ right).to(torch.bfloat16)
    assert judge_float(errors(result, left @ right), "bfloat16", 4608)[0]


@given(st.sampled_from(sorted(EXACT_SUMS)), st.integers(1, 10**9))
def test_sums_of_an_exact_fill_stay_representable(dtype, terms):
    """In the accumulator even if every product were the largest one and of one sign; in the dtype at six
    times their root mean square."""
    fill = exact_fill(dtype, terms)
    assert 0 < fill.density <= 1
    assert fill.largest >= 1
    accumulated = EXACT_SUMS["float64" if dtype == "float64" else "float32"]
    assert terms * fill.density * fill.largest**2 <= accumulated * 1.001
    mean_square = (fill.largest + 1) * (2 * fill.largest + 1) / 6
    assert 6 * math.sqrt(terms * fill.density) * mean_square <= EXACT_SUMS[dtype] * 1.001


@given(st.sampled_from(DTYPES), st.integers(1, 10**9), st.integers(1, 10**6))
def test_limits_grow_with_the_number_of_terms_and_stay_above_the_rounding(dtype, terms, more):
    for measure in ("rms_range", "max_ratio"):
        assert 0.99 / EXACT_SUMS[dtype] <= limit(measure, dtype, terms) <= limit(measure, dtype, terms + more)


@given(
    st.sampled_from(DTYPES),
    st.floats(-1e4, 1e4, allow_nan=False).filter(lambda value: value == 0 or abs(value) > 1e-4),
)
def test_ulp_is_the_distance_to_the_next_number(dtype, value):
    number = torch.tensor(value, dtype=torch.float64).to(getattr(torch, dtype))
    away = torch.tensor(math.copysign(math.inf, float(number)), dtype=number.dtype)
    distance = abs(float(torch.nextafter(number.float(), away.float())) - float(number))
    if dtype == "float32":
        assert ulp(float(number), dtype) == pytest.approx(distance)
    assert number.to(torch.float64) + ulp(float(number), dtype) != number.to(torch.float64)


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.5, "passes"), (5, "passes as implicit GEMM"), (50, "fails")]
)
def test_miopens_own_rule_is_told_beside_ours(share, verdict):
    error = share * 8.2e-3
    measured = Errors(1, error, error, 1.0, 1.0, 0)
    assert miopen_rule(measured, "float16", "fwd", transposed=False) == verdict
    assert miopen_rule(measured, "float64", "fwd", transposed=False) is None


class TestWhatIsToldOfBadElements:
    def test_the_worst_of_them_and_a_map(self):
        reference = torch.arange(2 * 8 * 4 * 4, dtype=torch.float64).reshape(2, 8, 4, 4) + 1
        result = reference.float()
        result[1, 3] *= 2
        numbers, lines = bad_elements("output", result, reference, differing(result, reference))
        assert numbers["worst"]["index"] == [1, 3, 3, 3]
        assert numbers["bad_share"] == 16 / 256
        ulps = (numbers["worst"]["result"] - numbers["worst"]["reference"]) / 2**-16
        assert numbers["worst"]["ulps"] == ulps
        marks = [line.split()[1] for line in lines[2:]]
        assert marks == ["." * 16 + "#" * 16 if row == 3 else "." * 32 for row in range(8)]

        # What is not a number is worst.
        reference = torch.ones(2, 3, 5, dtype=torch.float64)
        result = reference.half() * 2
        result[0, 1, 2] = math.nan
        numbers, _ = bad_elements("output", result, reference, torch.ones_like(reference, dtype=torch.bool))
        assert numbers["worst"] == {"index": [0, 1, 2], "reference": 1.0, "result": "nan"}

    @given(
        st.lists(st.integers(1, 40), min_size=1, max_size=4), st.sampled_from(["output", "weight", "bias"])
    )
    def test_a_map_fits_a_screen(self, shape, name):
        reference = torch.zeros(shape, dtype=torch.float64)
        _, lines = bad_elements(name, reference + 1, reference, torch.ones(shape, dtype=torch.bool))
        assert len(lines) <= 18
        assert all(len(line) <= 110 for line in lines[1:])
        assert all(set(line.split()[1]) == {"#"} for line in lines[2:])


class TestJudgeFloat:
    nothing = Errors(0, 0.0, 0.0, 0.0, 0.0, 0)

    @pytest.mark.parametrize("dtype", EXACT_SUMS)
    def test_an_empty_result_is_right(self, dtype):
        assert judge_float(self.nothing, dtype, 1)[0]
        assert errors(torch.empty(0, 3), torch.empty(0, 3, dtype=torch.float64)) == self.nothing

    def test_odd_results(self):
        # Zero where zero is right.
        zeros = torch.zeros(4, dtype=torch.float64)
        assert judge_float(errors(zeros.half(), zeros), "float16", 9)[0]
        assert not judge_float(errors(zeros.half() + 1e-3, zeros), "float16", 9)[0]

        # A measure that is NaN does not hold.
        broken = Errors(4, math.nan, 0.0, 1.0, 1.0, 0)
        assert not judge_float(broken, "float32", 9)[0]

        # Non finite elements are counted.
        result = torch.tensor([1.0, math.nan, math.inf])
        measured = errors(result, torch.ones(3, dtype=torch.float64))
        assert measured.non_finite == 2
        assert "2 of 3" in judge_float(measured, "float32", 9)[2]

        # Shapes must agree.
        with pytest.raises(ValueError, match="shape"):
            errors(torch.zeros(3), torch.zeros(1, 3, dtype=torch.float64))
