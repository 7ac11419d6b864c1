"""When one time is said to be shorter than another."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rows import every_row

from rocmprobe.judge.noise import SAME_TIME, Seconds, Yardsticks, drift, ratio, seconds, yardsticks

OPPOSITE = {"shorter": "longer", "longer": "shorter", "same": "same", "too noisy": "too noisy"}
GEMM = {"gemm": 1.0, "gemm_flops": 1e9, "copy": 1.0, "copy_bytes": 1e9}


@st.composite
def times(draw):
    p10, median, p90 = sorted(draw(st.tuples(*[st.floats(1e-6, 1e3)] * 3)))
    return Seconds(median, p10, p90)


@every_row(
    ("own", "other", "moved", "told"),
    [
        ((1.0, 0.9, 1.1), (2.0, 1.8, 2.2), 1.0, "shorter"),
        ((2.0, 1.8, 2.2), (1.0, 0.9, 1.1), 1.0, "longer"),
        ((1.0, 0.99, 1.01), (1.0, 0.98, 1.02), 1.0, "same"),
        # Their medians are far apart, and so are their deciles.
        ((1.0, 0.5, 3.0), (2.0, 1.0, 4.0), 1.0, "too noisy"),
        # Apart by a fifth, while the device became a quarter faster.
        ((1.0, 1.0, 1.0), (1.2, 1.2, 1.2), 1.25, "too noisy"),
        ((1.0, 1.0, 1.0), (1.2, 1.2, 1.2), 1.15, "shorter"),
    ],
)
def test_the_rule(own, other, moved, told):
    assert ratio(Seconds(*own), Seconds(*other), moved).verdict == told


@given(times(), times(), st.floats(1.0, 3.0))
def test_told_is_the_same_from_both_sides_and_never_against_the_deciles(own, other, moved):
    # A hair's breadth at a bound may fall to either side.
    found, back = ratio(own, other, moved), ratio(other, own, moved)
    bounds = (1.0, SAME_TIME, 1 / SAME_TIME)
    assume(not any(edge == pytest.approx(bound) for edge in (found.least, found.most) for bound in bounds))
    assert back.verdict == OPPOSITE[found.verdict]
    assert found.least <= found.value * (1 + 1e-9)
    assert found.value <= found.most * (1 + 1e-9)
    if own.p10 <= other.p90 and other.p10 <= own.p90:
        assert found.verdict in ("same", "too noisy")


@given(times(), times(), st.floats(1.0, 3.0), st.floats(1.0, 3.0))
def test_drift_only_adds_doubt(own, other, some, more):
    told = ratio(own, other, some * more).verdict
    assert told == "too noisy" or told == ratio(own, other, some).verdict


@every_row("odd", [{"fwd": None}, {"fwd_p10": "x"}, {"fwd_p90": -1}, {"fwd": 9.0}, {"fwd_p90": True}])
def test_what_is_no_time_with_its_spread_is_not_compared(odd):
    assert seconds({"fwd": 1.0, "fwd_p10": 0.5, "fwd_p90": 2.0}, "fwd") == Seconds(1.0, 0.5, 2.0)
    assert seconds({"fwd": 1.0, "fwd_p10": 0.5, "fwd_p90": 2.0, **odd}, "fwd") is None


def test_drift_is_what_the_yardsticks_differ_by_at_most():
    assert drift(GEMM, {**GEMM, "gemm": 1.2, "copy": 0.5}) == pytest.approx(2.0)
    assert drift(GEMM, {**GEMM, "gemm": 2.0, "gemm_flops": 2e9}) == 1.0
    assert drift(GEMM, {}) == 1.0


@every_row("odd", [None, "fast", 0, -1.0, nan, inf, 10**400, [1]])
@every_row("name", ["gemm", "gemm_flops", "copy", "copy_bytes"])
def test_without_both_yardsticks_there_is_no_rate(name, odd):
    timings = {"gemm": 0.5, "gemm_flops": 2e9, "copy": 0.25, "copy_bytes": 1e9}
    assert yardsticks(timings) == Yardsticks(4e9, 4e9)
    assert yardsticks({**timings, name: odd}) is None
