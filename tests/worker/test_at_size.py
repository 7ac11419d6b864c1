"""The check of convolution with images of ordinary size: its samples, and the faults that they find."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from asking import context  # noqa: E402
from faulty_convolutions import changed  # noqa: E402
from tiers import OLD_TORCH  # noqa: E402

from rocmprobe.checks.at_size import convolution_at_size, sampled_reference  # noqa: E402
from rocmprobe.checks.tools.tensors import problem_operands, run  # noqa: E402
from rocmprobe.model.problems import parse_problem, problems  # noqa: E402
from rocmprobe.model.results import DIRECTIONS  # noqa: E402

RESULTS = {"fwd": "output", "bwd-data": "input", "bwd-weights": "weight"}
AT_44 = "conv2d-fp32-n2-c16-i44x44-k32-f3x3-p1"


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    "text",
    [
        "conv2d-fp32-n2-c5-i11x19-k3-f3x2-s2x1-p1-d1x2",
        "conv2d-fp32-n1-c3-i23x29-k4-f7x7-s2-p3",
        "conv2d-fp32-n2-c5-i9x30-k3-f3x3-p1x2",
        "conv2d-fp32-n2-c4-i8x8-k4-f1x1",
    ],
)
def test_the_samples_are_the_elements_of_the_whole_result(text: str, direction: str) -> None:
    problem = parse_problem(text)
    operands = problem_operands(problem, torch.float32, 1)
    where, expected = sampled_reference(problem, direction, operands.operands(direction), 3)
    whole = run(problem, direction, operands)[RESULTS[direction]]
    torch.testing.assert_close(whole[where], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_tile_with_fifteen_elements_in_a_row_has_a_sample(direction: str, seed: int) -> None:
    problem = parse_problem(AT_44)
    operands = problem_operands(problem, torch.float32, 1)
    where, _ = sampled_reference(problem, direction, operands.operands(direction), seed)
    shape = run(problem, direction, operands)[RESULTS[direction]].shape
    sampled = torch.zeros(shape)
    sampled[where] = 1
    rows = sampled.flatten(1) if direction == "bwd-weights" else sampled.flatten(0, 2)
    assert rows.unfold(1, 15, 1).sum(-1).min() >= 1


@pytest.mark.parametrize("text", [problem.text for problem in problems("quick", "sizes")])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_cpu_is_correct(text: str, direction: str) -> None:
    if OLD_TORCH and "fp16" in text:
        pytest.skip("torch before 2.0 has no float16 convolution on a CPU")
    for setting in ("default", "vendor-off"):
        answer = convolution_at_size(context(text, setting, direction=direction))
        assert (answer.state, answer.message) == ("pass", "")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_one_wrong_tile_is_found_in_any_place(direction: str) -> None:
    for place in (0, 5, 13):

        def wrong(result: Any, place: int = place) -> Any:
            if direction == "bwd-weights":
                result.flatten(1)[place : place + 16, place : place + 16] *= 1.5
            else:
                result[1, 3, place : place + 16, place : place + 16] *= 1.5
            return result

        answer = convolution_at_size(context(AT_44, direction=direction, below=changed(wrong)))
        assert answer.state == "wrong"
        assert answer.evidence[0].endswith("samples are wrong")
        if direction != "bwd-weights":
            assert answer.numerics["worst"]["index"][:2] == [1, 3]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_one_element_that_is_not_a_number_is_found_in_any_place(direction: str) -> None:
    for place in range(0, 40, 7):

        def lost(result: Any, place: int = place) -> Any:
            result.view(-1)[place] = float("nan")
            return result

        answer = convolution_at_size(context(AT_44, direction=direction, below=changed(lost)))
        assert (answer.state, answer.numerics["non_finite"]) == ("wrong", 1)
        assert "1 of" in answer.message
        assert "not finite" in answer.message


def test_a_wrong_shape_is_told() -> None:
    answer = convolution_at_size(context(AT_44, direction="fwd", below=changed(lambda output: output[:1])))
    assert answer.message == "output: shape (1, 32, 44, 44) instead of (2, 32, 44, 44)"
