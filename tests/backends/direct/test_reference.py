"""The plain-Python reference, against PyTorch on the CPU and against itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.backends.direct.reference import (
    convolve,
    decode,
    errors,
    integers,
    matrix_product,
    operands,
    plain,
)
from rocmprobe.kernels.exact import encode
from rocmprobe.model.numerics import exact_fill
from rocmprobe.model.problems import parse_problem

PROBLEMS = (
    "conv1d-fp64-n2-c3-i9-k4-f3-s2-p1",
    "conv2d-fp64-n2-c4-i7x6-k6-f3x2-s2x1-p1-d1x2-g2",
    "conv2d-fp64-n1-c4-i5x5-k8-f3x3-p1-g4",
    "conv3d-fp64-n1-c2-i4x4x5-k3-f2x3x2-s1-p1",
)


@pytest.mark.parametrize("text", PROBLEMS)
@pytest.mark.parametrize("direction", ["fwd", "bwd-data", "bwd-weights"])
def test_a_convolution_is_pytorchs(text, direction):
    torch = pytest.importorskip("torch")
    problem = parse_problem(text)
    shapes = {"x": problem.input_shape, "w": problem.weight_shape, "y": problem.output_shape}
    values = operands(problem, direction, exact_fill(problem.dtype, problem.terms(direction)))
    tensors = {
        name: torch.tensor(values.get(name, [0] * torch.Size(shape).numel()), dtype=torch.float64).view(shape)
        for name, shape in shapes.items()
    }
    x, w = tensors["x"].requires_grad_(), tensors["w"].requires_grad_()
    function = getattr(torch.nn.functional, problem.kind)
    y = function(x, w, None, problem.stride, problem.padding, problem.dilation, problem.groups)
    if direction != "fwd":
        y.backward(tensors["y"])
    expected = {"fwd": y, "bwd-data": x.grad, "bwd-weights": w.grad}[direction]
    assert convolve(problem, direction, values) == expected.flatten().tolist()


def test_a_convolution_by_hand():
    problem = parse_problem("conv2d-fp32-n1-c1-i2x2-k1-f2x2-p1")
    x, w = [1, 2, 3, 4], [1, 10, 100, 1000]
    assert convolve(problem, "fwd", {"x": x, "w": w}) == [1000, 2100, 200, 3010, 4321, 402, 30, 43, 4]
    with pytest.raises(ValueError, match="transposed"):
        convolve(parse_problem("conv_transpose2d-fp32-n1-c1-i2x2-k1-f2x2"), "fwd", {"x": x, "w": w})


@pytest.mark.parametrize("direction", ["fwd", "bwd-data", "bwd-weights"])
@pytest.mark.parametrize(
    "text",
    [
        "conv_transpose2d-fp32-n2-c4-i5x6-k6-f3x2-s2x3-p1-o1x2-g2",
        "conv_transpose1d-fp32-n1-c2-i7-k3-f4-s2-d2",
    ],
)
def test_a_transposed_convolution_is_a_plain_one_turned_round(text, direction):
    torch = pytest.importorskip("torch")
    problem = parse_problem(text)
    turned, its_direction = plain(problem, direction)
    assert (turned.input_shape, turned.output_shape) == (problem.output_shape, problem.input_shape)
    assert turned.weight_shape == problem.weight_shape
    inputs = operands(turned, its_direction, exact_fill("float32", turned.terms(its_direction)))
    # What is x to one is y to the other.
    shapes = {"x": problem.output_shape, "w": problem.weight_shape, "y": problem.input_shape}
    drawn = {name: torch.tensor(v, dtype=torch.float64).view(shapes[name]) for name, v in inputs.items()}
    x = drawn.get("y", torch.zeros(problem.input_shape, dtype=torch.float64)).requires_grad_()
    w = drawn.get("w", torch.zeros(problem.weight_shape, dtype=torch.float64)).requires_grad_()
    function = getattr(torch.nn.functional, problem.kind)
    y = function(x, w, None, problem.stride, problem.padding, problem.output_padding, problem.groups,
                 problem.dilation)  # fmt: skip
    if direction == "fwd":
        expected = y
    else:
        of = x if direction == "bwd-data" else w
        [expected] = torch.autograd.grad(y, [of], drawn["x"])
    assert convolve(turned, its_direction, inputs) == expected.flatten().tolist()


def test_a_matrix_product():
    assert matrix_product(2, 1, 3, [1, 2, 3, 4, 5, 6], [1, 10, 100]) == [321, 654]


def test_the_fill_is_the_same_each_time_and_keeps_to_its_density():
    assert integers(50, 4, seed=1) == integers(50, 4, seed=1) != integers(50, 4, seed=2)
    assert 0 not in integers(200, 2)
    sparse = integers(1000, 1, density=0.25)
    assert 150 < sum(map(bool, sparse)) < 350
    assert set(sparse) == {-1, 0, 1}


@given(
    values=st.lists(st.integers(-256, 256)),
    dtype=st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
)
def test_small_integers_survive_every_dtype(values, dtype):
    assert decode(encode(values, dtype), dtype) == values


def test_errors_of_a_result():
    measured = errors([1, float("nan"), 5, float("inf")], [1, 2, 3, 0])
    assert (measured.count, measured.non_finite) == (4, 2)
    assert (measured.rms_range, measured.max_ratio) == (1 / 5, 2 / 3)
    assert (measured.max_result, measured.max_reference) == (5, 3)
    assert errors([], []).max_ratio == 0
