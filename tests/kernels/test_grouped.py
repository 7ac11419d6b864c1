"""Depthwise and grouped kernels on the CPU, against exact integers."""

from __future__ import annotations

import ctypes
import re

import on_cpu
import pytest
from exact_problems import LAYOUTS, Problem, geometries
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import THOROUGH

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry, geometry
from rocmprobe.kernels.families import grouped, reduction
from rocmprobe.kernels.sources import source_text

_DIRECTIONS = (FWD, BWD_DATA, BWD_WEIGHTS)
_CAP, _UNITS = 1 << 20, 36
#: For few problems the compiler takes longer than they do.
_OPTIMIZED = "-O1" if THOROUGH else "-O0"


def _library(dtype: str) -> ctypes.CDLL:
    return on_cpu.built(source_text(dtype, (reduction, grouped)), _OPTIMIZED)


def _computes(library: ctypes.CDLL, problem: Problem, number: int = 0, cap: int = _CAP) -> bool:
    """Return True if an option, of those there are, computes the problem."""
    options = grouped.options(problem.direction, problem.plain, problem.dtype, cap, _UNITS)
    option = options[number % len(options)]
    assert option.workspace_bytes <= cap
    launches = problem.prepared(grouped, option.variant, option.workspace_bytes)
    assert launches is not None
    assert len(launches) <= option.launches
    return problem.run(library, launches, option.workspace_bytes, number)


def _plain(
    channels: int, filters: int, groups: int, image: tuple[int, ...], kernel: int, stride: int = 1,
    dilation: int = 1, batch: int = 1,
) -> Geometry:  # fmt: skip
    spatial = len(image)
    return geometry(
        (batch, channels, *image),
        (filters, channels // groups, *(kernel,) * spatial),
        stride=(stride,) * spatial,
        padding=(kernel // 2,) * spatial,
        dilation=(dilation,) * spatial,
        groups=groups,
    )


#: Tiles of one and of several groups, several tiles in a row and in a column, and every kernel.
_CHOSEN = [
    _plain(3, 3, 3, (40, 70), 3),
    _plain(20, 20, 20, (7, 7), 3, batch=2),
    _plain(9, 9, 9, (33, 19), 5, stride=2),
    _plain(2, 2, 2, (24, 40), 7),
    _plain(4, 8, 4, (20, 36), 3, stride=2),
    _plain(8, 4, 4, (20, 36), 3),
    _plain(3, 8, 1, (36, 36), 3, stride=2),
    _plain(8, 8, 2, (18, 18), 3),
    _plain(6, 3, 1, (40, 33), 3),
    _plain(40, 40, 40, (1, 1), 1),
    _plain(2, 4, 1, (3, 3), 3),
    _plain(3, 4, 1, (2, 2), 3),
    _plain(3, 8, 1, (2, 2), 3),
    _plain(8, 3, 1, (2, 2), 3),
    _plain(5, 5, 5, (300,), 3),
    _plain(5, 10, 5, (70,), 3),
    _plain(3, 8, 1, (300,), 3),
    _plain(3, 3, 3, (5, 9, 12), 3, stride=2, batch=2),
    _plain(2, 2, 1, (4, 6, 9), 3),
    _plain(2, 2, 2, (40, 40), 3, dilation=18),
]


@pytest.mark.parametrize("direction", _DIRECTIONS)
def test_every_kernel_and_kind_of_tile_computes_exactly(direction: str) -> None:
    library = _library("float32")
    met = set()
    for number, plain in enumerate(_CHOSEN):
        layouts = (LAYOUTS[number // 2 % 2],) * 3
        problem = Problem(direction, plain, "float32", layouts, number % 2 == 0, number)
        for option in grouped.options(direction, plain, "float32", _CAP, _UNITS, every=True):
            launches = problem.prepared(grouped, option.variant, option.workspace_bytes)
            assert launches is not None
            met |= {each.kernel for each in launches}
            assert problem.run(library, launches, option.workspace_bytes, number), (plain, layouts, option)
    if direction == BWD_WEIGHTS:
        assert met == {"sum_splits", "grouped_weights_1x9", "grouped_weights_4x9"}
    else:
        assert met == {"grouped_gather_1x4", "grouped_gather_4x4", "grouped_gather_direct"}


@pytest.mark.parametrize(
    "dtype",
    ["float32", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("bfloat16", "float16"))],
)
@pytest.mark.parametrize("direction", _DIRECTIONS)
def test_drawn_problems_are_computed_exactly(direction: str, dtype: str) -> None:
    library = _library(dtype)

    @settings(max_examples=100 if THOROUGH else 25, deadline=None)
    @given(
        geometries(8), st.tuples(*[st.sampled_from(LAYOUTS)] * 3), st.booleans(), st.integers(0, 1000)
    )  # fmt: skip
    def computed(plain: Geometry, layouts: tuple[str, ...], bias: bool, seed: int) -> None:
        assert _computes(library, Problem(direction, plain, dtype, layouts, bias, seed), seed)

    computed()


def test_the_phases_of_a_stride_share_a_launch() -> None:
    plain = _plain(144, 144, 144, (56, 56), 3, stride=2)
    assert grouped.options(BWD_DATA, plain, "float32", _CAP, _UNITS)[0].launches == 1


def test_larger_groups_are_left_to_other_kernels() -> None:
    assert not grouped.options(FWD, _plain(9, 9, 1, (8, 8), 3), "float32", _CAP, _UNITS)
    assert not grouped.options(BWD_DATA, _plain(8, 9, 1, (8, 8), 3), "float32", _CAP, _UNITS)


def test_bwd_weights_keeps_to_the_workspace_that_is_allowed() -> None:
    plain = _plain(4, 4, 4, (64, 64), 3, batch=8)
    values = 4 * 9 * 4
    free = grouped.options(BWD_WEIGHTS, plain, "float32", _CAP, _UNITS)[0].workspace_bytes
    assert free > 3 * values
    assert grouped.options(BWD_WEIGHTS, plain, "float32", 3 * values, _UNITS)[0].workspace_bytes == 3 * values
    for cap in (values - 1, 0):
        alone = grouped.options(BWD_WEIGHTS, plain, "float32", cap, _UNITS)[0]
        assert (alone.workspace_bytes, alone.launches) == (0, 1)
        problem = Problem(BWD_WEIGHTS, plain, "float32", ("any",) * 3, False, 1)
        assert _computes(_library("float32"), problem, cap=cap)


def test_bytes_of_depthwise_layers_are_near_one_pass_over_each_tensor() -> None:
    for channels, size, kernel, stride in (
        (32, 112, 3, 1),
        (96, 112, 3, 2),
        (576, 14, 3, 1),
        (240, 28, 5, 1),
    ):
        plain = _plain(channels, channels, channels, (size, size), kernel, stride, batch=8)
        once = 8 * channels * (size**2 + (size // stride) ** 2) * 4
        for direction in _DIRECTIONS:
            option = grouped.options(direction, plain, "float32", 1 << 28, _UNITS)[0]
            assert option.variant.startswith("staged")
            # At stride 2 bwd-data reads the feature for each of its four phases.
            assert option.moved_bytes < (1.2 if stride == 1 or direction != BWD_DATA else 1.8) * once


def test_a_missing_barrier_is_noticed() -> None:
    text = source_text("float32", (reduction, grouped))
    pieces = re.split(r"(?m)^ +BARRIER\(\);\n", text)
    count = len(pieces) - 1
    assert count == 6
    marked = pieces[0]
    for number, piece in enumerate(pieces[1:]):
        marked += f"if (missing != {number}) BARRIER();\n" + piece
    library = on_cpu.built('extern "C" { int missing = -1; }\n' + marked, _OPTIMIZED)
    missing = ctypes.c_int.in_dll(library, "missing")
    plain = _plain(4, 4, 2, (24, 24), 3, batch=5)
    problems = [
        Problem(direction, plain, "float32", ("first",) * 3, False, 1) for direction in (FWD, BWD_WEIGHTS)
    ]
    noticed = []
    for number in (-1, *range(count)):
        missing.value = number
        noticed.append(not all(_computes(library, problem) for problem in problems))
    assert noticed == [False, *[True] * count]


@pytest.mark.thorough
def test_nothing_undefined_is_done(capfd: pytest.CaptureFixture[str]) -> None:
    library = on_cpu.built(source_text("bfloat16", (reduction, grouped)), "-O0", "-fsanitize=undefined")
    for direction in _DIRECTIONS:
        for number, plain in enumerate(_CHOSEN):
            layouts = [LAYOUTS[(number + each) % 3] for each in range(3)]
            assert _computes(library, Problem(direction, plain, "bfloat16", layouts, True, number), number)
    assert "runtime error" not in capfd.readouterr().err
