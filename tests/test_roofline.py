"""Work, rates and shares of the roofline."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import every_row

from rocmprobe.model.problems import parse_problem
from rocmprobe.model.roofline import DIRECTIONS_IN, Roof, Work, measure_roof, work

#: 3 x 3 over 1 x 2 x 4 x 4 to three channels: 16 positions, 54 weights.
SMALL = parse_problem("conv2d-fp32-n1-c2-i4x4-k3-f3x3-p1")
POSITIVE = st.floats(1e-6, 1e15)


def test_the_share_and_the_rates():
    # Work counts operations and compulsory bytes.
    assert work(SMALL, "fwd") == Work(2 * 16 * 54, 4 * (32 + 54 + 48))
    assert work(SMALL, "bwd_data") == work(SMALL, "bwd_weights") == work(SMALL, "fwd")
    assert work(SMALL, "fwd_bwd") == Work(3 * 2 * 16 * 54, 3 * 4 * (32 + 54 + 48))

    # The two sides of the ridge.
    ceiling = Roof(flops=100.0, bytes=10.0)
    assert ceiling.attainable(Work(flops=2.0, bytes=1.0)) == 20
    assert ceiling.attainable(Work(flops=50.0, bytes=1.0)) == 100
    assert ceiling.share(Work(flops=50.0, bytes=1.0), seconds=1.0) == 0.5

    # Rates come from the yardsticks.
    timings = {"gemm": 0.5, "gemm_flops": 2e9, "copy": 0.25, "copy_bytes": 1e9}
    assert measure_roof(timings) == Roof(4e9, 4e9)


@every_row(("dtype", "item"), [("fp16", 2), ("bf16", 2), ("fp64", 8)])
def test_bytes_go_by_the_dtype(dtype, item):
    problem = parse_problem(SMALL.text.replace("fp32", dtype))
    assert work(problem, "fwd").bytes == item * (32 + 54 + 48)


@given(POSITIVE, POSITIVE, POSITIVE, POSITIVE, POSITIVE)
def test_the_share_is_the_time_that_the_slower_part_needs(flops, moved, rate, bandwidth, seconds):
    todo, ceiling = Work(flops, moved), Roof(rate, bandwidth)
    assert ceiling.attainable(todo) <= rate
    needed = max(flops / rate, moved / bandwidth)
    assert ceiling.share(todo, seconds) == pytest.approx(needed / seconds)


@every_row("odd", [None, "fast", 0, -1.0, nan, inf, 10**400, [1]])
@every_row("name", ["gemm", "gemm_flops", "copy", "copy_bytes"])
def test_no_roof_without_both_yardsticks(name, odd):
    timings = {"gemm": 0.5, "gemm_flops": 2e9, "copy": 0.25, "copy_bytes": 1e9, name: odd}
    assert measure_roof(timings) is None


def test_every_direction_that_is_timed_has_its_work():
    assert set(DIRECTIONS_IN) == {"fwd", "bwd_data", "bwd_weights", "fwd_bwd"}
