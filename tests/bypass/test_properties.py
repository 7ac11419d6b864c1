"""Random problems of small integers, whose sums every exact algorithm gets without any error.

HYPOTHESIS_PROFILE=thorough runs thousands of them.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planning import plan as planned
from test_workspace import MEGABYTE, peak_above_results
from tiers import examples

from rocmprobe import geometry
from rocmprobe.bypass import interceptor
from rocmprobe.bypass.algorithms import ALGORITHMS
from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall

EXAMPLES = 1000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else examples(100)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@dataclass(frozen=True)
class Case:
    transposed: bool
    input: tuple
    weight: tuple
    lists: tuple  # stride, padding, dilation
    output_padding: tuple
    groups: int
    bias: bool
    dtype: torch.dtype
    layouts: tuple  # of input, weight and output gradient
    algorithm: str
    workspace_mb: float
    seed: int

    def settings(self):
        return (*self.lists, self.transposed, self.output_padding, self.groups)


@st.composite
def cases(draw, algorithm):
    """A random problem, of a form that ``algorithm`` is made for."""
    spatial = 2 if algorithm == "slow_conv2d" else draw(st.integers(1, 3))
    transposed = draw(st.booleans())
    ones = (1,) * spatial

    def sizes(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(spatial))

    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inside, outside = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    kernel, stride = sizes(1, 3 if spatial == 3 else 4), sizes(1, 3)
    dilation, padding = sizes(1, 2), sizes(0, 3)
    if algorithm == "pointwise":
        kernel, stride, padding = ones, ones, (0,) * spatial
    elif algorithm == "slow_conv2d":
        dilation, groups = ones, 1
    image = []
    for k, s, d, p in zip(kernel, stride, dilation, padding):
        reach = (k - 1) * d + 1
        low = max(1, -(-(2 * p - reach + 1) // s) + 1) if transposed else max(1, reach - 2 * p)
        image.append(draw(st.integers(low, low + (12 if spatial < 3 else 5))))
    extra = (0,) * spatial
    if transposed:
        extra = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation))
    weight = (inside * groups, outside) if transposed else (outside * groups, inside)
    layouts = st.sampled_from([*["contiguous"] * 4, "channels-last", "sliced", "expanded", "reversed"])
    return Case(
        transposed,
        (draw(st.integers(1, 5)), inside * groups, *image),
        (*weight, *kernel),
        (stride, padding, dilation),
        extra,
        groups,
        draw(st.booleans()),
        draw(st.sampled_from(DTYPES)),
        (draw(layouts), draw(layouts), draw(layouts)),
        algorithm,
        draw(st.sampled_from([256, 256, 1, 0.05, 4e-3, 1e-6])),
        draw(st.integers(0, 2**16)),
    )


class Values:
    """Small integers in every layout."""

    def __init__(self, case):
        self._generator = torch.Generator().manual_seed(case.seed)
        self._dtype = case.dtype

    def of(self, shape, layout="contiguous"):
        if layout == "channels-last":
            return self._fill((shape[0], *shape[2:], shape[1])).movedim(-1, 1)
        if layout == "sliced":
            return self._fill((*shape[:-1], 2 * shape[-1] + 1))[..., 1::2]
        if layout == "expanded":
            return self._fill((shape[0], 1, *shape[2:])).expand(shape)
        if layout == "reversed":
            return self._fill(shape[::-1]).permute(*reversed(range(len(shape))))
        return self._fill(shape)

    def _fill(self, shape):
        return torch.randint(-3, 4, shape, generator=self._generator).to(self._dtype)


#: The other algorithms need a GPU.
ON_A_CPU = ("pointwise", "im2col", "slow_conv2d")


class Watched:
    """An algorithm that notes with which plans it is called."""

    def __init__(self, algorithm, plans):
        self._algorithm, self._plans = algorithm, plans

    def __getattr__(self, name):
        found = getattr(self._algorithm, name)
        if name not in ("forward", "backward"):
            return found

        def watched(plan, *operands):
            self._plans.append(plan)
            return found(plan, *operands)

        return watched


class Problem:
    """The operands of a case, and its directions by PyTorch and by the bypass."""

    def __init__(self, case):
        values = Values(case)
        self.case = case
        self.input, self.weight = (
            values.of(case.input, case.layouts[0]),
            values.of(case.weight, case.layouts[1]),
        )
        self.filters = case.weight[1] * case.groups if case.transposed else case.weight[0]
        self.bias = values.of((self.filters,)) if case.bias else None
        output = self.natively(None)[0]
        self.gradient = values.of(tuple(output.shape), case.layouts[2])

    def natively(self, gradient):
        """Output and, with its ``gradient``, the gradients of input, weight and bias, in fp64."""
        dtype = torch.float64
        input, weight = plainly(self.input.to(dtype)), plainly(self.weight.to(dtype))
        bias = None if self.bias is None else self.bias.to(dtype)
        output = torch.ops.aten.convolution(input, weight, bias, *self.case.settings())
        if gradient is None:
            return [output]
        mask = [True, True, self.case.bias]
        sizes = [self.filters] if self.case.bias else None
        operands = (plainly(gradient.to(dtype)), input, weight, sizes)
        return [output, *torch.ops.aten.convolution_backward(*operands, *self.case.settings(), mask)]

    def native_strides(self):
        """Of the results, where PyTorch's own kernels can be asked: in fp16 and bf16 some of them crash."""
        if self.case.dtype in (torch.float16, torch.bfloat16):
            return [None] * 4
        settings, mask = self.case.settings(), [True, True, self.case.bias]
        sizes = [self.filters] if self.case.bias else None
        output = torch.ops.aten.convolution(self.input, self.weight, self.bias, *settings)
        try:
            gradients = torch.ops.aten.convolution_backward(
                self.gradient, self.input, self.weight, sizes, *settings, mask
            )
        except RuntimeError:
            # In fp64, for some weights that are contiguous and channels-last at once.
            gradients = [None] * 3
        return [None if each is None else telling_strides(each) for each in (output, *gradients)]

    def directions(self):
        computes = interceptor.BypassInterceptor(self.case.workspace_mb, self.case.algorithm)
        forward = ConvolutionCall(self.input, self.weight, self.bias, *self.case.settings())

        def backward(*mask):
            sizes = (self.filters,) if mask[2] else None
            operands = (self.gradient, self.input, self.weight, sizes)
            call = BackwardCall(*operands, *self.case.settings(), mask)
            return lambda: computes.convolution_backward(call, None)

        return {
            geometry.FWD: lambda: computes.convolution(forward, None),
            geometry.BWD_DATA: backward(True, False, False),
            geometry.BWD_WEIGHTS: backward(False, True, False),
            "bias": backward(False, False, self.case.bias),
        }


def check(case, seen):
    problem = Problem(case)
    exact, strides = problem.natively(problem.gradient), problem.native_strides()
    plans = []
    watched = {name: Watched(algorithm, plans) for name, algorithm in ALGORITHMS.items()}
    with mock.patch.dict(ALGORITHMS, watched):
        directions = problem.directions()
        output = directions[geometry.FWD]()
        to_input, _, _ = directions[geometry.BWD_DATA]()
        _, to_weight, _ = directions[geometry.BWD_WEIGHTS]()
        _, _, to_bias = directions["bias"]()
    assert len(plans) == 3
    seen.update(plan.algorithm for plan in plans)
    results = (output, to_input, to_weight, to_bias)
    for got, right, expected, plan in zip(results, exact, strides, [*plans, None]):
        if right is None:
            assert got is None
            continue
        assert (got.shape, got.dtype) == (right.shape, case.dtype)
        assert expected is None or telling_strides(got) == expected
        # fp32 holds every sum, so that fp16 and bf16 round it once.
        assert torch.equal(got, right.to(case.dtype)), plan
    for direction, plan in zip(directions, plans):
        check_cap(case, direction, plan)
    measured = case.seed % (4 if case.bias else 3)
    direction = list(directions)[measured]
    if direction == "bias":
        limit = max(case.workspace_mb * MEGABYTE, 4 * problem.gradient[:, 0].numel())
    else:
        limit = plans[measured].workspace_bytes
    # Allocators round every block up to 64 bytes, and PyTorch keeps scalars and lists of its own.
    assert peak_above_results(directions[direction]) <= limit + 4096, direction


def check_cap(case, direction, plan):
    """Above the cap only with a single window, and where no other algorithm could do with less."""
    cap = case.workspace_mb * MEGABYTE
    if plan.workspace_bytes <= cap:
        return
    assert plan.algorithm == "pointwise" or (plan.samples, set(plan.tile)) == (1, {1})
    if case.algorithm == "auto" and set(case.layouts) == {"contiguous"}:
        stride, padding, dilation = case.lists
        for name in ON_A_CPU:
            other = planned(
                direction, case.input, case.weight, stride=stride, padding=padding, dilation=dilation,
                transposed=case.transposed, output_padding=case.output_padding, groups=case.groups,
                dtype=str(case.dtype).rsplit(".", 1)[-1], workspace_mb=case.workspace_mb, algorithm=name,
            )  # fmt: skip
            assert other.workspace_bytes > cap


def plainly(tensor):
    """With the strides of its shape alone: where a size is 1, PyTorch's fp64 kernels may mistake others."""
    return tensor.reshape(-1).view(tensor.shape)


def telling_strides(tensor):
    return [stride for stride, size in zip(tensor.stride(), tensor.shape) if size > 1]


@pytest.mark.parametrize("algorithm", ["auto", *ON_A_CPU])
def test_random_problems(algorithm):
    seen = Counter()

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(case=cases(algorithm))
    def run(case):
        check(case, seen)

    run()
    assert algorithm in seen or algorithm == "auto", seen


def test_operands_that_are_contiguous_and_channels_last_at_once():
    lists = ((1, 1), (0, 0), (1, 1))
    for algorithm in ("auto", *ON_A_CPU):
        settings = (lists, (0, 0), 1, False, torch.float64)
        layouts = ("channels-last", "contiguous", "contiguous")
        check(Case(False, (1, 2, 1, 2), (1, 2, 1, 1), *settings, layouts, algorithm, 256, 0), Counter())
