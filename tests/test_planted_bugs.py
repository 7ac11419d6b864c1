"""The check of convolution finds every planted bug, and none in correct kernels."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import pytest
from planted_bugs import BUGS

from rocmprobe.simulate.machines import load_machine

torch = pytest.importorskip("torch")

from faulty_convolutions import (  # noqa: E402
    Combination,
    CorrectKernel,
    FaultyKernel,
    combinations,
    planted,
)

from rocmprobe.checks.convolution import convolution  # noqa: E402
from rocmprobe.checks.tools.context import CheckContext  # noqa: E402
from rocmprobe.simulate.libraries import SimulatedMiopen  # noqa: E402

#: By whose rule the kernels are judged: half precision is summed in fp32, integer sums are exact.
GPU = SimulatedMiopen(load_machine("healthy-gfx1100"))


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


@pytest.mark.parametrize("each", SMALL)
def test_the_check_finds_it(each: Combination) -> None:
    assert verdict(each, FaultyKernel(each.bug.name)) == "wrong"


@pytest.mark.parametrize("each", [each for each in SMALL if each.bug.name == "lost-term"])
@pytest.mark.parametrize("exact", [True, False])
def test_the_check_finds_nothing_in_right_kernels(each: Combination, exact: bool) -> None:
    assert verdict(each, CorrectKernel(), exact) == "pass"
