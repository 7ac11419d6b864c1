"""The two tiers of numerics: faults of a real size are caught, right results pass."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.numerics import Errors, exact_fill, judge_float
from rocmprobe.worker.compare import errors, unequal

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
    left = torch.randint(-fill.input_max, fill.input_max + 1, (ROWS, terms), generator=generator)
    left = left * (torch.rand(left.shape, generator=generator) < fill.density)
    right = torch.randint(-fill.weight_max, fill.weight_max + 1, (terms, COLUMNS), generator=generator)
    return left.to(torch.float64), right.to(torch.float64)


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
        pytest.skip("below the rounding of bfloat16: the exact tier's task, tested below")
    left, right = operands(terms, dtype)
    reference = left @ right
    result = fault(left, right, reference.clone()).to(getattr(torch, dtype))
    right_result, numbers, why = judge_float(errors(result, reference), dtype)
    assert not right_result
    assert why
    assert set(numbers) == {"rms_range", "rms_range_limit", "max_ratio", "max_ratio_limit", "non_finite"}


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(4))
def test_a_right_result_with_float32_accumulation_passes(dtype, terms, seed):
    left, right = operands(terms, dtype, seed)
    result = (left.float() @ right.float()).to(getattr(torch, dtype))
    held, numbers, why = judge_float(errors(result, left @ right), dtype)
    assert held, why
    # A limit near what right kernels reach would fail some device's honest order of summation.
    assert numbers["rms_range"] < numbers["rms_range_limit"] / 3
    assert numbers["max_ratio"] < numbers["max_ratio_limit"] / 3


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("dtype", DTYPES)
class TestExactTier:
    def test_a_right_result_is_equal_in_any_order_of_summation(self, dtype, terms):
        left, right = integers(terms, dtype)
        order = torch.randperm(terms, generator=torch.Generator().manual_seed(1))
        kind = getattr(torch, dtype)
        shuffled = (left[:, order].to(kind).float() @ right[order].to(kind).float()).to(kind)
        assert unequal(shuffled, left @ right) == 0

    def test_one_lost_term_shows(self, dtype, terms):
        left, right = integers(terms, dtype)
        result = lost_term(left, right, left @ right).to(getattr(torch, dtype))
        assert unequal(result, left @ right) > 0

    def test_accumulating_in_the_dtype_itself_is_exact_too(self, dtype, terms):
        left, right = integers(terms, dtype)
        kind = getattr(torch, dtype)
        running = torch.zeros(ROWS, COLUMNS, dtype=kind)
        for term in range(terms):
            running = running + left[:, term : term + 1].to(kind) * right[term : term + 1].to(kind)
        assert unequal(running, left @ right) == 0


def test_the_float_tier_alone_would_miss_a_lost_term_in_bfloat16():
    left, right = operands(4608, "bfloat16")
    result = lost_term(left, right, left @ right).to(torch.bfloat16)
    assert judge_float(errors(result, left @ right), "bfloat16")[0]


@given(st.sampled_from(sorted(EXACT_SUMS)), st.integers(0, 10**9))
def test_sums_of_an_exact_fill_stay_representable(dtype, terms):
    """Were every product that is expected to be there the largest one, and of one sign, half of what the
    mantissa holds would be used: the other half is for a fill that comes out denser than expected."""
    fill = exact_fill(dtype, terms)
    assert 0 < fill.density <= 1
    expected = terms * fill.density * fill.input_max * fill.weight_max
    assert expected <= EXACT_SUMS[dtype] / 2 * (1 + 1e-9)
    assert fill.input_max >= 1
    assert fill.weight_max >= 1


class TestJudgeFloat:
    nothing = Errors(0, 0.0, 0.0, 0.0, 0.0, 0)

    @pytest.mark.parametrize("dtype", EXACT_SUMS)
    def test_an_empty_result_is_right(self, dtype):
        assert judge_float(self.nothing, dtype)[0]
        assert errors(torch.empty(0, 3), torch.empty(0, 3, dtype=torch.float64)) == self.nothing

    def test_zero_where_zero_is_right(self):
        zeros = torch.zeros(4, dtype=torch.float64)
        assert judge_float(errors(zeros.half(), zeros), "float16")[0]
        assert not judge_float(errors(zeros.half() + 1e-3, zeros), "float16")[0]

    def test_a_measure_that_is_nan_does_not_hold(self):
        broken = Errors(4, math.nan, 0.0, 1.0, 1.0, 0)
        assert not judge_float(broken, "float32")[0]

    def test_non_finite_elements_are_counted(self):
        result = torch.tensor([1.0, math.nan, math.inf])
        measured = errors(result, torch.ones(3, dtype=torch.float64))
        assert measured.non_finite == 2
        assert "2 of 3" in judge_float(measured, "float32")[2]

    def test_shapes_must_agree(self):
        with pytest.raises(ValueError, match="shape"):
            errors(torch.zeros(3), torch.zeros(1, 3, dtype=torch.float64))
