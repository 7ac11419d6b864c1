"""Depthwise and grouped kernels on the CPU, against exact integers."""

from __future__ import annotations

import ctypes

import on_cpu
import pytest
from grouped_problems import LAYOUTS, Problem, geometries
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import THOROUGH

from rocmprobe.kernels import extents, grouped, reduction
from rocmprobe.kernels.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry
from rocmprobe.kernels.sources import source_text

_DIRECTIONS = (FWD, BWD_DATA, BWD_WEIGHTS)


def _library(dtype: str) -> ctypes.CDLL:
    return on_cpu.built(source_text(dtype, (reduction, grouped)), "-O1")


def _computes(library: ctypes.CDLL, problem: Problem, number: int = 0, cap: int = 1 << 20) -> bool:
    """Whether an option, of those there are, computes the problem."""
    options = grouped.options(problem.direction, problem.plain, problem.dtype, cap)
    option = options[number % len(options)]
    assert option.workspace_bytes <= cap
    launches = problem.prepared(grouped, option)
    assert launches is not None
    assert len(launches) == option.launches
    return problem.run(library, launches, option.workspace_bytes, number)


@pytest.mark.parametrize("dtype", sorted(extents.ITEM_BYTES))
@pytest.mark.parametrize("direction", _DIRECTIONS)
def test_drawn_problems_are_computed_exactly(direction: str, dtype: str) -> None:
    library = _library(dtype)

    @settings(max_examples=1000 if THOROUGH else 25, deadline=None)
    @given(
        geometries(8),
        st.tuples(*[st.sampled_from(LAYOUTS)] * 3),
        st.booleans(),
        st.integers(0, 1000),
    )
    def computed(plain: Geometry, layouts: tuple[str, ...], bias: bool, seed: int) -> None:
        problem = Problem(direction, plain, dtype, layouts, bias, seed)
        assert _computes(library, problem, seed)

    computed()
