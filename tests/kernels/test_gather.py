"""Forward and bwd-data as gathers, against the definition of a convolution."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry
from rocmprobe.kernels.families.gather import Axis, gathers

_SIZES = st.tuples(
    st.integers(1, 12), st.integers(1, 12), st.integers(1, 6), st.integers(1, 5), st.integers(-3, 6),
    st.integers(1, 5),
)  # fmt: skip


@given(st.lists(_SIZES, min_size=1, max_size=2))
def test_every_product_is_met_once_and_every_position_written_once(sizes: list[tuple[int, ...]]) -> None:
    image, feature, kernel, stride, padding, dilation = zip(*sizes)
    plain = Geometry(1, 1, 1, 1, image, feature, kernel, stride, padding, dilation)
    #: (window, tap, image position)
    meeting = [
        tuple(zip(*each))
        for each in product(
            *(
                [
                    (window, tap, window * s - p + tap * d)
                    for window in range(f)
                    for tap in range(k)
                    if 0 <= window * s - p + tap * d < i
                ]
                for i, f, k, s, p, d in sizes
            )
        )
    ]
    expected = {
        FWD: (feature, image, [(window, tap, position) for window, tap, position in meeting]),
        BWD_DATA: (image, feature, [(position, tap, window) for window, tap, position in meeting]),
    }
    for direction, (written_sizes, read_sizes, products) in expected.items():
        written, met = [], []
        for axes in gathers(direction, plain):
            of_axes = [_of_axis(axis, read) for axis, read in zip(axes, read_sizes)]
            written += list(product(*(positions for positions, _ in of_axes)))
            met += [tuple(zip(*each)) for each in product(*(products for _, products in of_axes))]
        assert sorted(written) == list(product(*map(range, written_sizes)))
        assert sorted(met) == sorted(products)


def _of_axis(axis: Axis, size: int) -> tuple[list[int], list[tuple[int, int, int]]]:
    """What a launch writes, and (written, tap, read) that lie inside."""
    positions = [axis.write_first + i * axis.write_step for i in range(axis.count)]
    products = []
    for i, j in product(range(axis.count), range(axis.taps)):
        read = i * axis.read_step + axis.read_first + j * axis.read_tap_step
        if 0 <= read < size:
            products.append((positions[i], axis.tap_first + j * axis.tap_step, read))
    return positions, products


def test_bwd_weights_is_no_gather() -> None:
    with pytest.raises(ValueError, match="bwd-weights"):
        gathers(BWD_WEIGHTS, Geometry(1, 1, 1, 1, (1,), (1,), (1,), (1,), (0,), (1,)))
