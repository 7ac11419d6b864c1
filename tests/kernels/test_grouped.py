"""Depthwise and grouped kernels on the CPU, against exact integers."""

from __future__ import annotations

import ctypes
from pathlib import Path

import on_cpu
import pytest
from grouped_problems import LAYOUTS, Problem, geometries
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import THOROUGH

from rocmprobe.kernels import exact, grouped, reduction
from rocmprobe.kernels.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry
from rocmprobe.kernels.launches import declaration

_DIRECTIONS = (FWD, BWD_DATA, BWD_WEIGHTS)


def _source(dtype: str) -> str:
    folder = Path(grouped.__file__).with_name("source")
    parts = [f"#define STORAGE_{dtype.upper()}\n", (folder / "common.hip").read_text("utf-8")]
    for family in (reduction, grouped):
        parts += map(declaration, family.STRUCTURES)
        parts += [(folder / name).read_text("utf-8") for name in family.SOURCES]
    return "\n".join(parts)


def _library(dtype: str) -> ctypes.CDLL:
    return on_cpu.built(_source(dtype), "-O1")


def _computes(library: ctypes.CDLL, direction: str, plain: Geometry, problem: Problem, seed: int = 1) -> bool:
    launches = grouped.prepare(direction, plain, *problem.strides, problem.dtype)
    figures = grouped.figures(direction, plain, *problem.strides, problem.dtype)
    assert launches is not None and figures is not None
    assert figures.launches == len(launches)
    return problem.run(library, launches, figures.workspace_bytes, seed)


@pytest.mark.parametrize("dtype", sorted(exact.ITEM_BYTES))
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
        assert _computes(library, direction, plain, problem, seed)

    computed()
