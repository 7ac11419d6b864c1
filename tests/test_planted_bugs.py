"""The registry of faulty convolutions: each bug does what it says, where it says, and the check finds it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from planted_bugs import BUGS, problem_with
from rows import every_row

from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS
from rocmprobe.simulate.machines import load_machine

torch = pytest.importorskip("torch")

from faulty_convolutions import (  # noqa: E402
    TERMS,
    Combination,
    CorrectKernel,
    FaultyKernel,
    combinations,
    exists_in,
    planted,
)

from rocmprobe.checks.convolution import convolution  # noqa: E402
from rocmprobe.checks.tools.context import CheckContext  # noqa: E402
from rocmprobe.checks.tools.tensors import Tensors, problem_operands, run  # noqa: E402
from rocmprobe.simulate.libraries import SimulatedMiopen  # noqa: E402

#: Of every kind and direction of reading: padding, stride, dilation, groups, memory formats, nothing to read.
SHAPES = (
    "conv2d-fp32-n2-c4-i6x6-k6-f3x3",
    "conv2d-fp32-n2-c4-i6x7-k6-f3x2-s2-p1-bias",
    "conv2d-fp32-n2-c4-i6x7-k6-f3x2-s2-p1x0-d1x2-g2",
    "conv2d-fp32-n2-c4-i6x6-k8-f3x3-g4-nhwc",
    # Not of 4 channels: of those, oneDNN in torch 2.13 with one thread writes past its memory.
    "conv2d-fp32-n2-c8-i6x6-k8-f1x1-s2-bias-nhwc",
    "conv2d-fp32-n2-c4-i1x1-k8-f3x3-p1",
    "conv2d-fp32-n1-c1-i1x1-k1-f1x1",
    "conv2d-fp32-n2-c4-i5x5-k3-f1x1-s10-p2",
    "conv1d-fp32-n2-c4-i9-k4-f3-s2-p2-d2-bias",
    "conv3d-fp32-n2-c2-i4x5x6-k3-f2x2x3-p0x1x0-d1x2x2",
    "conv_transpose2d-fp32-n2-c4-i3x4-k6-f3x3-s2-p1-o1-bias",
    "conv_transpose2d-fp32-n2-c4-i3x4-k6-f3x2-p0x1-d2x1-g2",
    "conv_transpose2d-fp32-n2-c4-i3x4-k4-f1x1-s2-nhwc",
    "conv_transpose1d-fp32-n2-c4-i5-k6-f3-s3-p1-bias",
)
#: By whose rule the kernels are judged: half precision is summed in fp32, integer sums are exact.
GPU = SimulatedMiopen(load_machine("healthy-gfx1100"))


def operands(problem: Problem, seed: int) -> Tensors:
    dtype = getattr(torch, problem.dtype)
    return problem_operands(problem, dtype, seed).to("cpu", dtype, problem)


def result(layer: CorrectKernel, problem: Problem, direction: str, *seeds: int) -> Mapping[str, Any]:
    """What the last of some calls comes to."""
    with planted(layer):
        found: Mapping[str, Any] = {}
        for seed in seeds:
            found = run(problem, direction, operands(problem, seed))
    return found


def case(each: Combination) -> str:
    return f"{each.bug.name}-{each.problem.dtype}-{each.direction}-{each.terms}"


@every_row("text", [*SHAPES, *(text.replace("fp32", "fp16") for text in SHAPES[:6])])
def test_a_bug_exists_where_and_only_where_the_result_differs(text: str) -> None:
    problem = parse_problem(text)
    for direction in DIRECTIONS:
        right = result(CorrectKernel(), problem, direction, 1, 2)
        for name, bug in BUGS.items():
            if name == "untouched-output":
                # What memory holds may be right by chance.
                continue
            found = result(FaultyKernel(name), problem, direction, 1, 2)
            differs = any(not torch.allclose(found[of], right[of], rtol=0, atol=1e-6) for of in right)
            assert differs == exists_in(bug, problem, direction), (name, direction)


@dataclass
class Difference:
    """Right and planted result of one combination in fp64, where what is planted stands alone."""

    combination: Combination
    right: Any
    wrong: Any

    @property
    def where(self) -> Any:
        return self.wrong != self.right


def difference(name: str, direction: str, problem: Problem | None = None) -> Difference:
    problem = problem or problem_with(BUGS[name], "float64", direction, 144)
    of = {"fwd": "output", "bwd-data": "input", "bwd-weights": "weight"}[direction]
    right = result(CorrectKernel(), problem, direction, 1, 2)[of]
    wrong = result(FaultyKernel(name), problem, direction, 1, 2)[of]
    return Difference(Combination(BUGS[name], direction, 144, problem), right, wrong)


class TestWhatABugDoes:
    @every_row("direction", DIRECTIONS)
    def test_lost_term_takes_one_product_from_every_sum(self, direction: str) -> None:
        problem = parse_problem("conv2d-fp64-n2-c4-i6x6-k6-f3x3-g2")
        ones = Tensors(*(torch.ones(shape, dtype=torch.float64) for shape in (
            problem.input_shape, problem.weight_shape)), None,
            torch.ones(problem.output_shape, dtype=torch.float64))  # fmt: skip
        right = next(iter(run(problem, direction, ones).values()))
        with planted(FaultyKernel("lost-term")):
            wrong = next(iter(run(problem, direction, ones).values()))
        if direction == "bwd-data":
            # A pixel at the edge is met by fewer taps, and by the last one where it is in its reach.
            assert torch.equal((right - wrong)[:, :, 2:, 2:], torch.ones(2, 4, 4, 4, dtype=torch.float64))
            assert int((right != wrong).sum()) == 2 * 4 * 4 * 4
        else:
            assert torch.equal(right - wrong, torch.ones_like(right))

    @every_row("direction", DIRECTIONS)
    def test_rows_channels_and_lanes(self, direction: str) -> None:
        # Zeroed row.
        found = difference("zeroed-row", direction)
        row = found.where.select(0 if direction == "bwd-weights" else 1, -1)
        assert row.all()
        assert int(found.where.sum()) == row.numel()
        assert not found.wrong[found.where].any()

        # Doubled channel.
        found = difference("doubled-channel", direction)
        assert int(found.where.sum()) == found.where.select(1, 0).sum() == found.where.select(1, 0).numel()
        assert torch.equal(found.wrong[found.where], 2 * found.right[found.where])

        # Doubled tile.
        found = difference("doubled-tile", direction)
        places = found.where.flatten().nonzero().flatten()
        assert len(places) == int(places[-1] - places[0]) + 1 == 16
        assert torch.equal(found.wrong[found.where], 2 * found.right[found.where])

        # NaN lane.
        found = difference("nan-lane", direction)
        assert int(found.where.sum()) == int(found.wrong.isnan().sum()) == 1

    @every_row("direction", DIRECTIONS)
    def test_a_random_element_is_another_one_in_each_call(self, direction: str) -> None:
        layer = FaultyKernel("random-element")
        problem = problem_with(BUGS["random-element"], "float64", direction, 144)
        right = next(iter(result(CorrectKernel(), problem, direction, 1).values()))
        places = []
        for _ in range(3):
            wrong = next(iter(result(layer, problem, direction, 1).values()))
            places.append((wrong != right).flatten().nonzero().flatten().tolist())
            assert float((wrong - right).abs().max()) == pytest.approx(float(right.square().mean().sqrt()))
        assert [len(place) for place in places] == [1, 1, 1]
        assert len({place[0] for place in places}) > 1

    @every_row("direction", DIRECTIONS)
    def test_what_a_buffer_holds(self, direction: str) -> None:
        # A stale buffer holds the former result.
        found = difference("stale-buffer", direction)
        former = result(CorrectKernel(), found.combination.problem, direction, 1)
        assert torch.equal(found.wrong, next(iter(former.values())))

        # An uncleared result is the sum of both.
        found = difference("uncleared-result", direction)
        former = result(CorrectKernel(), found.combination.problem, direction, 1)
        assert torch.equal(found.wrong, found.right + next(iter(former.values())))

    @every_row("direction", DIRECTIONS)
    def test_nothing_is_written(self, direction: str) -> None:
        """What memory holds is chance; that no kernel runs is not."""
        problem = problem_with(BUGS["untouched-output"], "float64", direction, 144)

        class Untouched(FaultyKernel):
            def convolution(self, call: Any, proceed: Any) -> Any:
                return super().convolution(call, None)

            def convolution_backward(self, call: Any, proceed: Any) -> Any:
                return super().convolution_backward(call, None)

        (found,) = result(Untouched("untouched-output"), problem, direction, 1).values()
        shapes = {"fwd": problem.output_shape, "bwd-data": problem.input_shape}
        assert found.shape == shapes.get(direction, problem.weight_shape)

    @every_row("direction", DIRECTIONS)
    def test_the_weights_of_the_last_group_alone_are_transposed(self, direction: str) -> None:
        found = difference("transposed-weights", direction)
        # The first half of the rows and columns is that of the other group.
        half = found.where.shape[0 if direction == "bwd-weights" else 1] // 2
        channels = found.where if direction == "bwd-weights" else found.where.transpose(0, 1)
        assert not channels[:half].any()
        assert channels[half:].any()
        if direction == "bwd-weights":
            assert torch.equal(found.wrong[half:], found.right[half:].transpose(-2, -1))

    @every_row(
        "text",
        [
            "conv2d-fp64-n2-c4-i6x6-k6-f3x3-s2-p1x2-d1x2",
            "conv_transpose2d-fp64-n2-c4-i4x5-k6-f2x3-s2-p1-o1-d2x1",
        ],
    )
    @every_row("direction", DIRECTIONS)
    @every_row("name", ["wrong-padding-edge", "swapped-dilation"])
    def test_what_is_read_wrongly_forward_is_in_the_gradients(
        self, direction: str, name: str, text: str
    ) -> None:
        """One bilinear map in all three directions, another than the right one."""
        problem = parse_problem(text)
        placed = operands(problem, 1)
        with planted(FaultyKernel(name)):
            output = run(problem, "fwd", placed)["output"]
            found = next(iter(run(problem, direction, placed).values()))
        other = {"fwd": placed.grad, "bwd-data": placed.input, "bwd-weights": placed.weight}[direction]
        assert torch.allclose((found * other).sum(), (output * placed.grad).sum())
        right = next(iter(run(problem, direction, placed).values()))
        assert not torch.allclose(found, right)


def test_what_is_read_at_the_edges() -> None:
    # The first column is read again before it.
    problem = parse_problem("conv2d-fp64-n2-c4-i6x6-k6-f3x3-p1")
    placed = operands(problem, 1)
    padded = torch.nn.functional.pad(placed.input, (1, 1, 1, 1))
    padded[..., 1:-1, 0] = placed.input[..., 0]
    with planted(FaultyKernel("wrong-padding-edge")):
        output = run(problem, "fwd", placed)["output"]
    assert torch.allclose(output, torch.nn.functional.conv2d(padded, placed.weight))

    # Swapped dilations read as the swapped problem does.
    problem = parse_problem("conv2d-fp64-n2-c4-i8x8-k6-f3x3-p2-d1x2")
    placed = operands(problem, 1)
    with planted(FaultyKernel("swapped-dilation")):
        output = run(problem, "fwd", placed)["output"]
    swapped = run(replace(problem, dilation=(2, 1)), "fwd", placed)["output"]
    # Each has positions that the other has not.
    assert (output.shape[2:], swapped.shape[2:]) == ((10, 8), (8, 10))
    assert torch.allclose(output[..., :8, :], swapped[..., :8])

    # Pixels that no tap reaches hold one.
    found = difference("unwritten-gaps", "bwd-data")
    reached = torch.zeros_like(found.where)
    reached[..., ::2, ::2] = True
    assert torch.equal(found.where, ~reached)
    assert (found.wrong[~reached] == 1).all()

    # The bias gradient lacks one term.
    problem = problem_with(BUGS["bias-gradient"], "float64", "bwd-weights", 144)
    with planted(FaultyKernel("bias-gradient")):
        found = run(problem, "bwd-weights", operands(problem, 1))
    grad = operands(problem, 1).grad
    assert torch.allclose(grad.sum((0, 2, 3)) - found["bias"], grad[-1, :, -1, -1])
    assert torch.equal(found["weight"], result(CorrectKernel(), problem, "bwd-weights", 1)["weight"])


@every_row(("dtype", "exact"), [("float16", 2048), ("bfloat16", 256)])
@every_row("direction", DIRECTIONS)
def test_a_sum_in_half_precision_stands_still(direction: str, dtype: str, exact: int) -> None:
    """Ones added to a number whose neighbour is 2 away are lost one by one; in fp32 they count."""
    problem = problem_with(BUGS["half-accumulation"], dtype, direction, 144)
    ones = Tensors(*(torch.ones(shape, dtype=getattr(torch, dtype)) for shape in (
        problem.input_shape, problem.weight_shape)), None,
        torch.ones(problem.output_shape, dtype=getattr(torch, dtype)))  # fmt: skip
    # The first product of every sum.
    if direction == "bwd-weights":
        ones.grad[0, :, 0, 0] = exact
    elif direction == "fwd":
        ones.weight[:, 0, 0, 0] = exact
    else:
        ones.weight[0, :, 0, 0] = exact
    with planted(CorrectKernel()):
        right = next(iter(run(problem, direction, ones).values()))
    with planted(FaultyKernel("half-accumulation")):
        wrong = next(iter(run(problem, direction, ones).values()))
    met = right > exact
    assert met.any()
    assert (wrong[met] == exact).all()


@every_row(
    ("dtype", "kept", "lost"),
    [("float64", 2**-23, 2**-25), ("float32", 2**-10, 2**-12), ("float16", 2**-7, 2**-9)],
)
def test_operands_keep_the_bits_of_the_narrower_dtype(dtype: str, kept: float, lost: float) -> None:
    image = torch.full((1, 1, 1, 1), 1, dtype=getattr(torch, dtype))
    weight = torch.tensor([1 + kept, 1 + lost], dtype=image.dtype).view(2, 1, 1, 1)
    with planted(FaultyKernel("reduced-precision")):
        assert torch.nn.functional.conv2d(image, weight).flatten().tolist() == [1 + kept, 1]


@every_row("bug", BUGS.values())
def test_a_problem_for_every_length_of_sums(bug: Any) -> None:
    made = list(combinations(bug))
    assert {each.problem.dtype for each in made} == set(bug.dtypes)
    assert all(each.problem.terms(each.direction) == each.terms for each in made)
    assert all(exists_in(each.bug, each.problem, each.direction) for each in made)
    directions = {to for to in DIRECTIONS if any(exists_in(bug, each.problem, to) for each in made)}
    assert directions == set(bug.directions)
    assert len(made) == len(bug.dtypes) * len(directions) * len(TERMS)


def verdict(each: Combination, layer: CorrectKernel | None, exact: bool = True) -> str:
    return convolution(
        CheckContext(
            dtype=getattr(torch, each.problem.dtype), device="cpu", backend=GPU, problem=each.problem,
            direction=each.direction, apply_setting=partial(planted, layer) if layer else nullcontext,
            report_phase=lambda phase: None, seconds=0.0, exact=exact, bypass=False,
        )
    ).state  # fmt: skip


SMALL = [
    each
    for bug in BUGS.values()
    for each in combinations(bug, (27, 576))
    if each.problem.dtype in ("float32", "bfloat16")
]


@every_row("each", SMALL)
def test_the_check_finds_it(each: Combination) -> None:
    assert verdict(each, FaultyKernel(each.bug.name)) == "wrong"


@every_row("each", [each for each in SMALL if each.bug.name == "lost-term"])
@every_row("exact", [True, False])
def test_the_check_finds_nothing_in_right_kernels(each: Combination, exact: bool) -> None:
    assert verdict(each, CorrectKernel(), exact) == "pass"
