"""Convolution as a product of matrices, run on the CPU, against exact integers."""

from __future__ import annotations

import ctypes

import on_cpu
import pytest
from exact_problems import LAYOUTS, Problem
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry, geometry
from rocmprobe.kernels import exact
from rocmprobe.kernels.families import gather_gemm, gemm, weights_gemm
from rocmprobe.kernels.families.extents import Strides
from rocmprobe.kernels.families.family import Family
from rocmprobe.kernels.sources import DTYPES, FAMILIES, source_text

_CAP, _UNITS = 1 << 24, 36
DIRECTIONS = (FWD, BWD_DATA, BWD_WEIGHTS)


def built(dtype: str, *options: str) -> ctypes.CDLL:
    """The kernels of a dtype."""
    return on_cpu.built(source_text(dtype, (gemm,)), *options)


def computes(
    library: ctypes.CDLL, problem: Problem, variant: str, workspace: int, seed: int = 1, with_kernel: str = ""
) -> bool:
    """Return True if the variant computes the problem to the bit and writes nothing else."""
    launches = problem.prepared(gemm, variant, _CAP)
    assert launches is not None
    assert not with_kernel or with_kernel in {each.kernel for each in launches}
    return problem.run(library, launches, workspace, seed)


@st.composite
def problems(draw: st.DrawFn) -> Geometry:
    """Small problems of one to three dimensions, which mostly end inside of a tile."""
    dimensions = draw(st.integers(1, 3))
    groups = draw(st.sampled_from((1, 1, 2, 3)))
    largest = 9 if dimensions == 3 else 20

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(dimensions)]

    inner, outer = draw(st.integers(1, 12)), draw(st.integers(1, 12)) * groups
    try:
        return geometry(
            (draw(st.integers(1, 3)), inner * groups, *each(1, largest)),
            (outer, inner, *each(1, 4)),
            stride=each(1, 3),
            padding=each(0, 3),
            dilation=each(1, 3),
            groups=groups,
        )
    except ValueError:
        reject()


def ways(direction: str, plain: Geometry) -> list[tuple[str, int]]:
    """Every variant that computes a problem, offered or not, with its bytes of workspace."""
    if direction == BWD_WEIGHTS:
        return [
            (f"{tile.name}/{splits}", weights_gemm.workspace_bytes(plain, tile, splits))
            for tile in weights_gemm.WEIGHTS_TILES
            if weights_gemm.fits(tile, plain)
            for splits in (1, 2, 5)
        ]
    products = gather_gemm.products(direction, plain)
    return [
        (f"{tile.name}/{splits}", gather_gemm.workspace_bytes(direction, plain, tile, products, splits))
        for tile in gather_gemm.TILES
        if all(gather_gemm.fits(tile, each) for each in products)
        for splits in (1, 2, 5)
    ]


def check(
    dtype: str, direction: str, plain: Geometry, seed: int, data: st.DataObject, *options: str, tile: str = ""
) -> None:
    variant, workspace = data.draw(
        st.sampled_from([way for way in ways(direction, plain) if way[0].startswith(tile)])
    )
    layouts = data.draw(st.tuples(*[st.sampled_from(LAYOUTS)] * 3))
    problem = Problem(direction, plain, dtype, layouts, seed % 2 == 0, seed)
    assert computes(built(dtype, *options), problem, variant, workspace, seed + 1)


#: The kernels of each dtype are compiled for seconds.
COMPILED = [pytest.param(each, marks=() if each == "float32" else pytest.mark.thorough) for each in DTYPES]
TILES = [
    *((direction, tile.name) for direction in (FWD, BWD_DATA) for tile in gather_gemm.TILES),
    *((BWD_WEIGHTS, tile.name) for tile in weights_gemm.WEIGHTS_TILES),
]


@pytest.mark.parametrize("dtype", COMPILED)
@pytest.mark.parametrize("direction", DIRECTIONS)
@settings(max_examples=10, deadline=None)
@given(plain=problems(), seed=st.integers(0, 1000), data=st.data())
def test_sums_are_exact(dtype: str, direction: str, plain: Geometry, seed: int, data: st.DataObject) -> None:
    check(dtype, direction, plain, seed, data)


@pytest.mark.thorough
@pytest.mark.parametrize(("direction", "tile"), TILES)
@settings(max_examples=60, deadline=None)
@given(plain=problems(), seed=st.integers(0, 1000), data=st.data())
def test_many_sums_of_a_tile_are_exact(
    direction: str, tile: str, plain: Geometry, seed: int, data: st.DataObject
) -> None:
    check(data.draw(st.sampled_from(DTYPES)), direction, plain, seed, data, tile=tile)


@pytest.mark.thorough
@pytest.mark.parametrize("direction", DIRECTIONS)
@settings(max_examples=5, deadline=None)
@given(plain=problems(), seed=st.integers(0, 1000), data=st.data())
def test_nothing_is_undefined(direction: str, plain: Geometry, seed: int, data: st.DataObject) -> None:
    check(
        "float32",
        direction,
        plain,
        seed,
        data,
        "-fsanitize=undefined",
        "-fsanitize-undefined-trap-on-error",
        "-O1",
    )


#: One for each tile: more rows and columns than it has, a depth of several steps, and remainders of all.
LARGE = geometry((2, 9, 13, 11), (150, 9, 3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1))
LONG = geometry((2, 3, 150), (70, 3, 40), stride=(1,), padding=(7,), dilation=(2,))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("plain", [LARGE, LONG], ids=["square", "long"])
def test_every_tile_is_exact(direction: str, plain: Geometry) -> None:
    tried = ways(direction, plain)
    assert any("wide" not in name for name, _ in tried) == (plain is LARGE)
    problem = Problem(direction, plain, "float32", ("first",) * 3, True, 0)
    for variant, workspace in tried:
        assert computes(built("float32"), problem, variant, workspace), variant


@pytest.mark.parametrize("direction", [FWD, BWD_DATA])
def test_a_wide_tile_reads_nothing_for_the_padding_of_its_table(direction: str) -> None:
    # The mark of the padding once also meant a distance of 512 in the first dimension: a read far outside.
    plain = geometry(
        (1, 1, 600, 1, 1), (4, 1, 3, 1, 1), stride=(1, 1, 1), padding=(1, 0, 0), dilation=(1, 1, 1)
    )
    problem = Problem(direction, plain, "float32", ("first",) * 3, True, 0)
    for variant, workspace in ways(direction, plain):
        assert "wide" not in variant or computes(built("float32"), problem, variant, workspace), variant


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("direction", [FWD, BWD_DATA])
def test_channels_that_are_neighbours_are_read_four_at_once(direction: str, dtype: str) -> None:
    plain = geometry((2, 40, 9, 8), (72, 20, 3, 3), stride=(2, 1), padding=(1, 1), dilation=(1, 1), groups=2)
    problem = Problem(direction, plain, dtype, ("last",) * 3, True, 0)
    for tile in gather_gemm.TILES[:3]:
        for splits in (1, 2):
            variant = f"{tile.name}/{splits}"
            workspace = dict(ways(direction, plain))[variant]
            kernel = tile.kernel(True)
            assert computes(built(dtype), problem, variant, workspace, with_kernel=kernel), variant


def test_the_sums_of_few_blocks_are_split() -> None:
    plain = geometry((1, 512, 7, 7), (512, 512, 3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1))
    many = geometry((32, 512, 28, 28), (512, 512, 3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1))
    for direction in (FWD, BWD_DATA):
        (few,) = gemm.options(direction, plain, "float32", 1 << 28, _UNITS)
        assert int(few.variant.partition("/")[2]) > 1
        assert few.launches == 3
        (whole,) = gemm.options(direction, plain, "float32", few.workspace_bytes - 1, _UNITS)
        assert whole.variant.endswith("/1")
        (full,) = gemm.options(direction, many, "float32", 1 << 28, _UNITS)
        assert full.variant.endswith("/1")


def test_the_phases_of_a_stride_share_their_launches() -> None:
    two = geometry((4, 64, 56, 56), (64, 64, 3, 3), stride=(2, 2), padding=(1, 1), dilation=(1, 1))
    four = geometry((4, 64, 56, 56), (64, 64, 5, 5), stride=(4, 4), padding=(2, 2), dilation=(1, 1))
    for plain, launches in ((two, 2), (four, 4)):
        strides = {name: Strides.of(exact.contiguous(shape)) for name, shape in exact.shapes(plain).items()}
        option = gemm.options(BWD_DATA, plain, "float32", 1 << 28, _UNITS)[0]
        prepared = gemm.prepare(
            BWD_DATA, plain, "float32", option.variant, **strides, has_bias=False, cap=option.workspace_bytes
        )
        assert prepared is not None
        assert len(prepared) == option.launches == launches


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_tensors_beyond_the_reach_of_an_offset_are_left_to_others(family: Family, direction: str) -> None:
    def plain(batch: int) -> Geometry:
        return geometry(
            (batch, 8, 512, 512), (8, 1, 3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=8
        )

    assert family.options(direction, plain(256), "float32", 1 << 30, _UNITS)
    assert not family.options(direction, plain(257), "float32", 1 << 30, _UNITS)
    (option,) = family.options(direction, plain(2), "float32", 1 << 30, _UNITS)
    image, weight, feature = (
        Strides.of(exact.contiguous(shape)) for shape in exact.shapes(plain(2)).values()
    )
    for outer, prepared in ((feature.outer, True), (1 << 29, False)):
        far = Strides(outer, feature.inner, feature.axes)
        launches = family.prepare(
            direction, plain(2), "float32", option.variant, image=image, weight=weight, feature=far,
            has_bias=False, cap=option.workspace_bytes,
        )  # fmt: skip
        assert (launches is not None) == prepared


@pytest.mark.thorough
def test_a_barrier_too_few_is_seen() -> None:
    # Those of the loops over the steps of a sum: a wave would overwrite what another still reads.
    parts = source_text("float32", (gemm,)).split("BARRIER();")
    ends = ("keep(buffer);", "if (fetching) stage(step / AHEAD + 1 & 1);")
    missing = [place for place, part in enumerate(parts) if part.rstrip().endswith(ends)]
    assert len(missing) == 2
    text = "".join(part + ("" if place in missing else "BARRIER();") for place, part in enumerate(parts[:-1]))
    library = on_cpu.built(text + parts[-1], "-O1")
    for direction in DIRECTIONS:
        variant, workspace = ways(direction, LARGE)[0]
        problem = Problem(direction, LARGE, "float32", ("first",) * 3, True, 0)
        assert not computes(library, problem, variant, workspace)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_an_option_keeps_within_the_workspace(direction: str) -> None:
    plain = geometry((8, 64, 56, 56), (64, 64, 3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1))
    strides = {
        "image": Strides.of((64 * 56 * 56, 56 * 56, 56, 1)),
        "weight": Strides.of((576, 9, 3, 1)),
        "feature": Strides.of((64 * 56 * 56, 56 * 56, 56, 1)),
    }
    # bwd-weights with sums of one part has its table of pixels alone.
    least = 50_176 if direction == BWD_WEIGHTS else 100_001
    for cap in (1 << 28, 1 << 20, 250_000, 100_000, 50_000):
        offered = gemm.options(direction, plain, "float32", cap, _UNITS)
        assert len(offered) <= 1
        assert bool(offered) == (cap >= least)
        for option in offered:
            assert option.workspace_bytes <= cap
            assert option.flops == 2 * 8 * 64 * 576 * 56 * 56
            launches = gemm.prepare(
                direction,
                plain,
                "float32",
                option.variant,
                **strides,
                has_bias=False,
                cap=option.workspace_bytes,
            )
            assert launches is not None
            assert len(launches) == option.launches
            assert all(each.threads in (64, 128, 256) for each in launches)
    assert gemm.options(direction, plain, "float64", 1 << 28, _UNITS) == []
