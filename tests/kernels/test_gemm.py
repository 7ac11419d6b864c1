"""Convolution as a product of matrices, run on the CPU, against exact integers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import on_cpu
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from tiers import examples

from rocmprobe.kernels import gather_gemm, gemm, weights_gemm
from rocmprobe.kernels.extents import Strides
from rocmprobe.kernels.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry, geometry
from rocmprobe.kernels.sources import DTYPES, source_text

torch = pytest.importorskip("torch")

_GUARD = 256
_CAP = 1 << 24
DIRECTIONS = (FWD, BWD_DATA, BWD_WEIGHTS)
_CONVOLUTIONS = {
    1: torch.nn.functional.conv1d,
    2: torch.nn.functional.conv2d,
    3: torch.nn.functional.conv3d,
}
VARIANTS = {(direction, tile.kernel): tile for direction in (FWD, BWD_DATA) for tile in gather_gemm.TILES}


def built(dtype: str, *options: str) -> ctypes.CDLL:
    """The kernels of a dtype."""
    return on_cpu.built(source_text(dtype, (gemm,)), *options)


class Guarded:
    """A tensor inside of a buffer, and whether what is around it stays as it was."""

    def __init__(self, values: torch.Tensor, dtype: torch.dtype, *, last: bool = False) -> None:
        order = (0, *range(2, values.dim()), 1) if last else tuple(range(values.dim()))
        shape = [values.shape[each] for each in order]
        self.bytes = torch.full((2 * _GUARD + values.numel() * dtype.itemsize,), 0x5A, dtype=torch.uint8)
        inner = self.bytes[_GUARD:-_GUARD].view(dtype).view(shape)
        self.tensor = inner.permute([order.index(each) for each in range(values.dim())])
        self.tensor.copy_(values)

    @property
    def intact(self) -> bool:
        return bool((self.bytes[:_GUARD] == 0x5A).all() and (self.bytes[-_GUARD:] == 0x5A).all())


def result(
    library: ctypes.CDLL,
    direction: str,
    plain: Geometry,
    dtype: str,
    variant: str,
    workspace: int,
    *,
    seed: int = 0,
    bias: bool = True,
    last: Sequence[bool] = (False, False, False),
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the kernels compute, and what is right."""
    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        "image": (plain.batch, plain.channels, *plain.image),
        "weight": (plain.filters, plain.channels // plain.groups, *plain.kernel),
        "feature": (plain.batch, plain.filters, *plain.feature),
    }
    exact = {
        name: torch.randint(-2, 3, shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }
    operands = {name: Guarded(exact[name], kind, last=each) for name, each in zip(shapes, last)}
    target = {FWD: "feature", BWD_DATA: "image", BWD_WEIGHTS: "weight"}[direction]
    offsets = torch.randint(-2, 3, (shapes[target][1],), generator=generator, dtype=torch.float64)
    bias = bias and direction != BWD_WEIGHTS
    operands["bias"] = Guarded(offsets, kind)
    operands[target].tensor.fill_(99)
    launches = gemm.prepare(
        direction,
        plain,
        dtype,
        variant,
        **{name: Strides.of(operands[name].tensor.stride()) for name in shapes},
        has_bias=bias,
        cap=_CAP,
    )
    assert launches is not None
    operands["workspace"] = Guarded(torch.full((workspace // 4,), float("nan")), torch.float32)
    addresses = {name: each.tensor.data_ptr() for name, each in operands.items()}
    on_cpu.run(library, list(launches), addresses, seed + 1)
    assert all(each.intact for each in operands.values())
    convolution = _CONVOLUTIONS[len(plain.kernel)]
    image, weight = exact["image"].requires_grad_(), exact["weight"].requires_grad_()
    outcome = convolution(image, weight, None, plain.stride, plain.padding, plain.dilation, plain.groups)
    if direction == FWD:
        right = outcome.detach()
    else:
        (right,) = torch.autograd.grad(outcome, image if direction == BWD_DATA else weight, exact["feature"])
    if bias:
        right = right + offsets.view(1, -1, *(1 for _ in plain.kernel))
    return operands[target].tensor, right.to(torch.float32).to(kind)


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
            (f"{tile.name}/{splits}", weights_gemm.workspace_bytes(plain, tile, splits, 1))
            for tile in weights_gemm.WEIGHTS_TILES
            if weights_gemm.fits(tile, plain)
            for splits in (1, 2, 5)
        ]
    products = gather_gemm.products(direction, plain)
    return [
        (tile.name, sum(sum(gather_gemm.packed_bytes(tile, each)) for each in products))
        for tile in gather_gemm.TILES
        if all(gather_gemm.fits(tile, each) for each in products)
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@settings(max_examples=examples(40), deadline=None)
@given(plain=problems(), seed=st.integers(0, 1000), data=st.data())
def test_sums_are_exact(dtype: str, direction: str, plain: Geometry, seed: int, data: st.DataObject) -> None:
    variant, workspace = data.draw(st.sampled_from(ways(direction, plain)))
    last = data.draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    got, right = result(
        built(dtype), direction, plain, dtype, variant, workspace, seed=seed, last=last, bias=seed % 2 == 0
    )
    assert torch.equal(got, right)
