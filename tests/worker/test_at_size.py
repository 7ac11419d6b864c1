"""The check of convolution with images of ordinary size: its samples, and the faults that it finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from asking import context
from faulty_convolutions import changed
from runs import machine_file
from tiers import OLD_TORCH

from rocmprobe.checks.at_size import convolution_at_size, sampled_reference
from rocmprobe.checks.tools.context import CheckContext
from rocmprobe.checks.tools.tensors import problem_operands, run
from rocmprobe.checks.training import training_step
from rocmprobe.knowledge.settings import Versions, settings_for
from rocmprobe.model.problems import parse_problem, problems
from rocmprobe.model.results import DIRECTIONS
from rocmprobe.simulate.gpu import SimulatedGpu
from rocmprobe.simulate.libraries import SimulatedMiopen, library_faults
from rocmprobe.simulate.machines import load_machine
from rocmprobe.worker.torch_driver import holding

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


LARGE_BATCH = {"library": "miopen", "effect": "wrong", "problem": r"-n(9|\d\d+)-"}
MANY_CHANNELS = {
    "library": "rocblas",
    "effect": "wrong",
    "problem": r"-[ck](256|512)-",
}


def on_machine(folder: Path, fault: dict[str, str], problem: str, name: str, **changes: Any) -> CheckContext:
    """Return the context of a check on a machine whose libraries have ``fault``."""
    machine = load_machine(str(machine_file(folder / "machine.toml", fault)))
    gpu, backend = SimulatedGpu(machine, name, "cuda:0", -1), SimulatedMiopen(machine)
    setting = next(each for each in settings_for("miopen") if each.name == name)
    versions = Versions("MIOpen", None, torch.__version__, None)
    held = holding(setting, backend, library_faults(gpu), versions)
    return context(problem, backend=backend, apply_setting=held, **changes)


@pytest.mark.parametrize(
    ("fault", "setting", "channels", "direction"),
    [
        pytest.param(LARGE_BATCH, "default", 16, "fwd", id="batches above 8 in MIOpen"),
        pytest.param(LARGE_BATCH, "default", 16, "bwd-weights", id="batches above 8 in MIOpen, weights"),
        pytest.param(MANY_CHANNELS, "vendor-off", 256, "fwd", id="256 channels in rocBLAS"),
        pytest.param(MANY_CHANNELS, "vendor-off", 512, "bwd-data", id="512 channels in rocBLAS"),
    ],
)
def test_convolution_at_size_finds_it(
    tmp_path: Path, fault: dict[str, str], setting: str, channels: int, direction: str
) -> None:
    (problem,) = [
        each
        for each in problems("quick", "sizes")
        if each.in_channels == channels and each.dtype == "float32"
    ]
    found = convolution_at_size(on_machine(tmp_path, fault, problem.text, setting, direction=direction))
    assert found.state == "wrong"


def test_the_training_step_finds_a_fault_of_large_batches(tmp_path: Path) -> None:
    problem = problems("quick", "native")[0].text
    states = {
        name: training_step(on_machine(tmp_path, LARGE_BATCH, problem, name)).state
        for name in ("default", "vendor-off")
    }
    assert states == {"default": "wrong", "vendor-off": "pass"}


def test_level_long_has_batch_32_and_2048_channels() -> None:
    rows = [each for each in problems("long", "sizes") if each.dtype == "float32"]
    assert max(each.batch for each in rows) == 32
    assert max(each.in_channels for each in rows) == 2048
