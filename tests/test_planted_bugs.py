"""The registry of faulty convolutions: where each bug changes a result, and that the check finds it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from planted_bugs import BUGS
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
