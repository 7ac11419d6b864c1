"""What the bypass says that it would do."""

import pytest
import torch
from planning import plan

from rocmprobe import bypass
from rocmprobe.model.problems import parse_problem

PROBLEM = "conv2d-fp32-n4-c64-i56x56-k64-f3x3-p1"


def test_each_direction_is_explained_as_it_is_planned():
    problem = parse_problem(PROBLEM)
    found = bypass.explain(problem, "cpu")
    assert list(found) == ["fwd", "bwd-data", "bwd-weights"]
    for direction, explanation in found.items():
        expected = plan(
            direction, problem.input_shape, problem.weight_shape,
            stride=(1, 1), padding=(1, 1), dilation=(1, 1),
        )  # fmt: skip
        assert explanation.algorithm == expected.algorithm
        assert explanation.workspace_bytes == expected.workspace_bytes
        assert explanation.flops == expected.flops == 2 * 4 * 64 * 64 * 9 * 56 * 56
        assert explanation.alternatives[0].name == expected.name
        count = len(explanation.alternatives)
        assert explanation.why == (f"the cost model ranks it fastest of {count} plans; not measured")


@pytest.mark.parametrize(
    "text", ["conv_transpose2d-fp32-n2-c8-i7x7-k4-f3x3-s2-p1", "conv1d-bf16-n2-c8-i70-k4-f3-p1"]
)
def test_what_is_explained_is_what_runs(text):
    problem = parse_problem(text)
    dtype = getattr(torch, problem.dtype)
    input, weight = (
        torch.ones(problem.input_shape, dtype=dtype),
        torch.ones(problem.weight_shape, dtype=dtype),
    )
    bypass.reset_status()
    function = getattr(bypass, problem.kind)
    function(input, weight, stride=problem.stride, padding=problem.padding)
    assert list(bypass.status()["calls"]) == [bypass.explain(problem, "cpu")["fwd"].algorithm]


def test_a_mapping_serves_as_well_and_the_reason_is_the_right_one():
    fields = ("input_shape", "weight_shape", "stride", "padding", "dilation", "transposed", "output_padding")
    problem = parse_problem(PROBLEM)
    mapping = {name: getattr(problem, name) for name in (*fields, "groups", "dtype", "channels_last")}
    assert bypass.explain(mapping, "cpu") == bypass.explain(problem, "cpu")
    named = bypass.explain(mapping, "cpu", algorithm="im2col")["fwd"]
    assert (named.algorithm, named.why) == ("im2col", "it was requested by name")
    narrow = bypass.explain(mapping, "cpu", workspace_mb=0.2)["fwd"]
    assert (narrow.algorithm, narrow.why) == ("im2col", "no other algorithm applies")
    assert narrow.workspace_bytes <= 0.2 * 2**20


def test_what_was_measured_is_said(monkeypatch):
    monkeypatch.setenv("ROCMPROBE_BYPASS_MEASURE", "1")
    problem = parse_problem("conv2d-fp32-n2-c8-i12x12-k8-f3x3-p1")
    bypass.forget()
    bypass.conv2d(torch.ones(problem.input_shape), torch.ones(problem.weight_shape), padding=1)
    found = bypass.explain(problem, "cpu")
    assert found["fwd"].why.startswith("measured on this device")
    assert found["bwd-data"].why.startswith("the cost model ranks it")
    bypass.forget()
    assert bypass.explain(problem, "cpu")["fwd"].why.startswith("the cost model ranks it")


def test_impossible_problems_are_refused():
    with pytest.raises(ValueError, match="no device type 'mps'"):
        bypass.explain(parse_problem(PROBLEM), "mps")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA or ROCm device"):
            bypass.explain(parse_problem(PROBLEM), "cuda")
    problem = parse_problem("conv2d-fp32-n1-c4-i3x3-k4-f3x3")
    broken = {
        **problem.__dict__,
        "input_shape": (1, 3, 3, 3),
        "weight_shape": problem.weight_shape,
        "transposed": False,
    }
    with pytest.raises(ValueError, match="input channels, weight channels"):
        bypass.explain(broken, "cpu")
    with pytest.raises(ValueError, match="no dtype 'int64'; there are float16"):
        bypass.explain({**problem.__dict__, **broken, "dtype": "int64"}, "cpu")
    with pytest.raises(ValueError, match="no algorithm 'magic'; there are auto, pointwise"):
        bypass.explain(problem, "cpu", algorithm="magic")
