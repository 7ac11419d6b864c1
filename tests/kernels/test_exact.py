"""The plain Python reference of the kernels against PyTorch, and the sum of partial results."""

from __future__ import annotations

import ctypes
from math import prod

import on_cpu
import pytest

from rocmprobe.kernels import exact
from rocmprobe.kernels.families import extents, reduction
from rocmprobe.kernels.sources import source_text

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, geometry  # noqa: E402


@st.composite
def problems(draw):
    rank = draw(st.sampled_from([2, 3]))
    groups = draw(st.sampled_from([1, 2, 3]))
    each = st.integers(1, 3)
    kernel, stride, dilation = (tuple(draw(each) for _ in range(rank)) for _ in range(3))
    padding = tuple(draw(st.integers(0, 2)) for _ in range(rank))
    reach = [(k - 1) * d + 1 - 2 * p for k, d, p in zip(kernel, dilation, padding)]
    sizes = tuple(max(1, r) + draw(st.integers(0, 4)) for r in reach)
    channels, filters = (groups * draw(st.integers(1, 2)) for _ in range(2))
    return geometry(
        (draw(st.integers(1, 2)), channels, *sizes), (filters, channels // groups, *kernel),
        stride=stride, padding=padding, dilation=dilation, groups=groups,
    )  # fmt: skip


@given(problems(), st.integers(0, 2**16))
def test_every_direction_is_that_of_pytorch(plain, seed):
    shapes = exact.shapes(plain)
    values = {
        name: exact.integers(seed + number, prod(shape))
        for number, (name, shape) in enumerate(shapes.items())
    }
    image, weight, feature = (
        torch.tensor(values[name], dtype=torch.float64).view(shape).requires_grad_()
        for name, shape in shapes.items()
    )
    bias = list(range(plain.filters))
    function = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[len(plain.kernel)]
    rest = (plain.stride, plain.padding, plain.dilation, plain.groups)
    output = function(image, weight, torch.tensor(bias, dtype=torch.float64), *rest)
    assert exact.convolved(FWD, plain, *values.values(), bias) == output.flatten().tolist()
    gradients = torch.autograd.grad(output, (image, weight), feature)
    for direction, expected in zip((BWD_DATA, BWD_WEIGHTS), gradients):
        assert exact.convolved(direction, plain, *values.values()) == expected.flatten().tolist()


def test_the_bias_of_bwd_data_is_of_the_images_channels():
    plain = geometry((1, 2, 2, 2), (3, 2, 1, 1), stride=(1, 1), padding=(0, 0), dilation=(1, 1))
    assert exact.convolved(BWD_DATA, plain, [], [0] * 6, [0] * 12, [5, 7]) == [5] * 4 + [7] * 4


@given(st.lists(st.integers(-(2**24), 2**24), min_size=1, max_size=20))
def test_values_are_stored_as_pytorch_stores_them(values):
    for dtype in ("float32", "bfloat16"):
        stored = torch.tensor(values, dtype=torch.float64).float().to(getattr(torch, dtype))
        assert exact.encode(values, dtype) == stored.view(torch.uint8).numpy().tobytes()
    small = [value % 4096 - 2048 for value in values]
    stored = torch.tensor(small, dtype=torch.float64).half()
    assert exact.encode(small, "float16") == stored.view(torch.uint8).numpy().tobytes()


@given(st.lists(st.integers(1, 4), min_size=4, max_size=5))
def test_a_tensor_in_channels_last_lies_as_pytorch_lays_it(shape):
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}[len(shape)]
    plain = torch.arange(float(prod(shape))).view(shape)
    other = plain.contiguous(memory_format=layout)
    strides = exact.channels_last(shape)
    assert torch.equal(torch.empty(prod(shape)).as_strided(shape, strides).copy_(plain), plain)
    moved = exact.reorder(plain.numpy().tobytes(), 4, shape, strides)
    assert moved == other.as_strided((prod(shape),), (1,)).numpy().tobytes()
    assert exact.contiguous(shape) == plain.stride()


@pytest.mark.parametrize("dtype", sorted(extents.ITEM_BYTES))
@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 3, 3), (2, 3, 2, 3, 5), (300,)])
@pytest.mark.parametrize("splits", [1, 2, 19])
def test_splits_are_summed_into_any_strides(dtype: str, shape: tuple[int, ...], splits: int) -> None:
    library = on_cpu.built(source_text(dtype, (reduction,)))
    item, values = extents.ITEM_BYTES[dtype], prod(shape)
    strides = tuple(reversed(exact.contiguous(tuple(reversed(shape)))))
    partial = exact.integers(values, splits * values)
    workspace = ctypes.create_string_buffer(b"\x55" * 16 + exact.encode(partial, "float32"))
    assert reduction.workspace_bytes(shape, splits) == len(workspace.raw) - 17
    target = ctypes.create_string_buffer(b"\xaa" * (values * item + 16))
    addresses = {"workspace": ctypes.addressof(workspace), "weight": ctypes.addressof(target)}
    on_cpu.run(library, [reduction.launch(shape, strides, splits, workspace_offset=16)], addresses)
    sums = [sum(partial[value::values]) for value in range(values)]
    expected = exact.reorder(exact.encode(sums, dtype), item, shape, strides)
    assert target.raw == expected + b"\xaa" * 16 + b"\0"
