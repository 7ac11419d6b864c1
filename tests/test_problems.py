"""Problems: their text form, the sizes PyTorch gives them, what they cost, and those that ship."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tiers import examples

from rocmprobe.model.problems import (
    DTYPES,
    KINDS,
    LEVELS,
    PURPOSES,
    Problem,
    parse_problem,
    problem_words,
    problems,
)
from rocmprobe.model.results import DIRECTIONS, BadInput
from rocmprobe.text.plain_text import quoted

ALL = [problem for purpose in PURPOSES for problem in problems("long", purpose)]
#: The last one is for 2-d alone.
LAYOUTS = ({}, {"noncontiguous": True}, {"channels_last": True})


@st.composite
def any_problem(draw, largest=9, kind=None):
    """A problem that PyTorch accepts."""
    kind = kind or draw(st.sampled_from(sorted(KINDS)))
    rank = KINDS[kind]

    def sizes(least, most):
        return tuple(draw(st.integers(least, most)) for _ in range(rank))

    groups = draw(st.integers(1, 3))
    transposed = "transpose" in kind
    stride, dilation = sizes(1, 3), sizes(1, 3)
    output_padding = tuple(
        draw(st.integers(0, max(s, d) - 1)) if transposed else 0 for s, d in zip(stride, dilation)
    )
    problem = Problem(
        kind, draw(st.sampled_from(sorted(DTYPES.values()))), draw(st.integers(1, 3)),
        groups * draw(st.integers(1, 3)), sizes(1, largest), groups * draw(st.integers(1, 3)), sizes(1, 3),
        stride, sizes(0, 2), dilation, output_padding, groups, draw(st.booleans()),
        **draw(st.sampled_from(LAYOUTS if rank == 2 else LAYOUTS[:2])),
    )  # fmt: skip
    assume(min(problem.output_size) >= 1)
    return problem


class TestText:
    @settings(max_examples=examples(200))
    @given(any_problem())
    def test_it_names_the_problem(self, problem):
        assert parse_problem(problem.text) == problem

    @given(any_problem())
    def test_spaces_around_it_do_not_matter(self, problem):
        assert parse_problem(f" {problem.text}\n") == problem

    def test_one_text_and_its_sizes(self):
        # Example of the documentation.
        text = "conv2d-fp16-n4-c64-i56x56-k128-f3x3-s2-p1-g2-bias-nhwc"
        problem = parse_problem(text)
        assert problem.text == text
        assert problem.input_shape == (4, 64, 56, 56)
        assert problem.weight_shape == (128, 32, 3, 3)
        assert problem.output_shape == (4, 128, 28, 28)

        # One number stands for all directions.
        assert parse_problem("conv3d-fp32-n1-c1-i5-k1-f3") == parse_problem(
            "conv3d-fp32-n1-c1-i5x5x5-k1-f3x3x3"
        )

        # JSON has the sizes.
        data = parse_problem("conv_transpose2d-fp32-n1-c4-i3x4-k2-f3x3-s2-p1-o1-noncontiguous").as_json()
        assert data["weight"] == [4, 2, 3, 3]
        assert data["output"] == [1, 2, 6, 8]
        assert data["id"] == "conv_transpose2d-fp32-n1-c4-i3x4-k2-f3x3-s2-p1-o1-noncontiguous"
        assert (data["channels_last"], data["noncontiguous"]) == (False, True)


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "named"),
        [
            ("", "''"),
            ("conv4d-fp32", "'conv4d'"),
            ("conv2d", "dtype"),
            ("conv2d-int8-n1-c1-i5-k1-f1", "dtype"),
            ("conv2d-fp32-c1-i5-k1-f1", "'n'"),
            ("conv2d-fp32-n1-c1-i5x5x5-k1-f1", "'i'"),
            ("conv1d-fp32-n1-c1-i5x5-k1-f1", "'i'"),
            ("conv2d-fp32-n1x2-c1-i5-k1-f1", "'n'"),
            ("conv2d-fp32-n1-c1-i5-k1-f1-x9", "'x9'"),
            ("conv2d-fp32-n1-n1-c1-i5-k1-f1", "'n1'"),
            ("conv2d-fp32-n1-c1-i5-k1-f1-bias-bias", "'bias'"),
            ("conv2d-fp32-n1-c1-i5-k1-f1-", "''"),
            ("conv2d-fp32-n-1-c1-i5-k1-f1", "'n'"),
            ("conv2d-fp32-n1-c" + "9" * 5000 + "-i5-k1-f1", "'c999"),
            ("conv2d-fp32-n1-c\u0663-i5-k1-f1", "'c\u0663'"),
            ("conv2d-fp32-n0-c1-i5-k1-f1", "'n'"),
            ("conv2d-fp32-n1-c1-i0-k1-f1-p1", "'i'"),
            ("conv2d-fp32-n1-c0-i5-k1-f1", "'c'"),
            ("conv2d-fp32-n1-c1-i5-k1-f0", "'f'"),
            ("conv2d-fp32-n1-c1-i5-k1-f1-s0", "'s'"),
            ("conv2d-fp32-n1-c1-i5-k1-f1-d0", "'d'"),
            ("conv2d-fp32-n1-c4-i5-k4-f1-g3", "groups"),
            ("conv2d-fp32-n1-c4-i5-k4-f1-g0", "'g'"),
            ("conv2d-fp32-n1-c1-i5-k1-f7", "no elements"),
            ("conv2d-fp32-n1-c1-i5-k1-f1-o1", "'o'"),
            ("conv_transpose2d-fp32-n1-c1-i5-k1-f1-o1", "'o'"),
            ("conv_transpose2d-fp32-n1-c1-i1-k1-f1-p1", "no elements"),
            ("conv1d-fp32-n1-c1-i5-k1-f1-nhwc", "'nhwc'"),
            ("conv2d-fp32-n1-c1-i5-k1-f1-nhwc-noncontiguous", "'noncontiguous'"),
            ("conv2d-fp32-n1-c1-i5-k1-f1-noncontiguous-noncontiguous", "'noncontiguous'"),
        ],
    )
    def test_the_token_is_named(self, text, named):
        with pytest.raises(BadInput) as refusal:
            parse_problem(text)
        message = str(refusal.value)
        assert named in message.partition(f"{quoted(text)}: ")[2]
        assert message.endswith("write it like conv2d-fp32-n1-c16-i28x28-k32-f3x3-s1-p1")
        assert "\n" not in message

    @settings(max_examples=examples(200))
    @given(
        st.text(max_size=30)
        | st.builds(
            "-".join,
            st.lists(
                st.sampled_from(("conv2d", "fp32", "n1", "c4", "i5x5", "k4", "f3", "s0", "g3", "p9", "bias"))
            ),
        )
    )
    def test_no_text_raises_anything_else(self, text):
        try:
            problem = parse_problem(text)
        except BadInput:
            return
        assert parse_problem(problem.text) == problem


def convolve(torch, problem, device):
    import torch.nn.functional as F

    arguments = {"stride": problem.stride, "padding": problem.padding, "dilation": problem.dilation}
    if problem.transposed:
        arguments["output_padding"] = problem.output_padding
    ones = torch.ones(problem.input_shape, device=device, dtype=torch.float64)
    weight = torch.ones(problem.weight_shape, device=device, dtype=torch.float64, requires_grad=True)
    ones.requires_grad_()
    output = getattr(F, problem.kind)(ones, weight, None, groups=problem.groups, **arguments)
    return ones, weight, output


@settings(max_examples=examples(200))
@given(any_problem())
def test_output_size_is_pytorch_s(problem):
    torch = pytest.importorskip("torch")
    assert tuple(convolve(torch, problem, "meta")[2].shape) == problem.output_shape


@settings(max_examples=examples(100))
@given(any_problem(largest=6))
def test_pytorch_computes_what_is_accepted(problem):
    torch = pytest.importorskip("torch")
    convolve(torch, problem, "cpu")


@settings(max_examples=examples(100))
@given(any_problem(largest=6))
def test_flops_and_terms_count_the_products(problem):
    """On operands of ones a result counts its products. Padding is computed with like data, and stride
    leaves some elements of a backward result with fewer products, so there the count is the largest."""
    torch = pytest.importorskip("torch")
    none = (0,) * problem.rank
    plain = Problem(**{**vars(problem), "padding": none, "output_padding": none})
    if min(plain.output_size) < 1:
        return
    ones, weight, output = convolve(torch, plain, "cpu")
    assert 2 * output.sum().item() == plain.flops
    data, weights = torch.autograd.grad(output, (ones, weight), torch.ones_like(output))
    for direction, result in (("fwd", output), ("bwd-data", data), ("bwd-weights", weights)):
        assert result.max().item() <= plain.terms(direction), direction
        assert 2 * result.sum().item() == plain.flops, direction
    # One result at least holds all of its products.
    assert weights.max().item() == plain.terms("bwd-weights")
    assert (data if plain.transposed else output).max().item() == plain.terms(
        "bwd-data" if plain.transposed else "fwd"
    )


class TestShipped:
    @pytest.mark.parametrize("purpose", PURPOSES)
    def test_levels_nest(self, purpose):
        found = [problems(level, purpose) for level in LEVELS]
        assert found[0]
        for lower, higher in zip(found, found[1:]):
            assert set(lower) <= set(higher)

    @pytest.mark.parametrize("problem", ALL)
    def test_small_enough(self, problem):
        """A slow GPU manages 100 GFLOP/s even with naive kernels; and 2 GB hold the operands and their
        columns many times over."""
        elements = sum(prod(s) for s in (problem.input_shape, problem.weight_shape, problem.output_shape))
        assert problem.flops < 10e9
        assert 8 * elements < 256 << 20
        assert max(problem.terms(direction) for direction in DIRECTIONS) < 1 << 18

    def test_every_level_asks_about_the_dtypes(self):
        # Each dtype is there.
        assert {problem.dtype for problem in problems("standard", "native")} == {
            "float32",
            "float16",
            "bfloat16",
        }
        assert {problem.dtype for problem in problems("long", "gradients")} == {"float64"}
        assert any(problem.groups > 1 for problem in problems("standard", "native"))

        # Quick asks about both common dtypes.
        assert {problem.dtype for problem in problems("quick", "native")} == {"float32", "float16"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("conv2d-fp32-n2-c16-i28x28-k32-f3x3-p1-bias", "3x3, 16 to 32 channels, 28x28, batch 2, fp32, bias"),
        ("conv2d-fp16-n4-c96-i56x56-k96-f3x3-s2-p1-g96",
         "depthwise 3x3, 96 to 96 channels, 56x56, batch 4, fp16, stride 2"),
        ("conv_transpose2d-fp32-n1-c8-i7x7-k4-f2x2-s2-g2",
         "transposed 2x2, 8 to 4 channels, 7x7, batch 1, fp32, stride 2, 2 groups"),
        ("no problem", "no problem"),
    ],
)  # fmt: skip
def test_problems_in_words(text, words):
    assert problem_words(text) == words
