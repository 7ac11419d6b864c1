"""Layers besides plain convolution: right on this CPU, and each check notices what goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import Run, machine_file, run
from tiers import OLD_TORCH

from rocmprobe.checks import CHECKS
from rocmprobe.model.results import Outcome

pytest.importorskip("torch")

CONTROLS = tuple(name for name, check in CHECKS.items() if check.rung == "controls")
PRIMITIVES = tuple(
    name
    for name, check in CHECKS.items()
    if check.rung == "primitives" and (check.layer or name == "convolution-kinds")
)
RECURRENT = ("rnn", "lstm", "gru")
BATCH_NORM = ("batch-norm", "batch-norm-eval")
BELOW = ("copy", "elementwise", "gemm", "im2col")
STATUS = "miopenStatusUnknownError"
#: What fails in the machine of these tests: operators of PyTorch's own kernels, and what enters MIOpen.
OWN_KERNELS = (
    "^(max_pool2d_with_indices|gelu|_softmax|avg_pool3d|masked_select|sort|cumsum|scatter_add|argmax|"
    "embedding_dense_backward|reflection_pad2d|native_layer_norm|upsample_bilinear2d|grid_sampler_2d|"
    "_prelu_kernel|prelu|_adaptive_avg_pool2d|nll_loss_forward|bernoulli_)$"
)
IN_MIOPEN = "^(native_batch_norm(_inference)?|rnn_tanh|lstm|gru|ctc_loss)$"
KIND = "conv1d-fp32-n2-c8-i50-k16-f10-s5"


def only(*checks: str) -> list[str]:
    return [argument for check in checks for argument in ("--only", check)]


def of(made: Run, check: str, setting: str = "default") -> list[Outcome]:
    return [each for each in made.outcomes.values() if (each.check, each.setting) == (check, setting)]


def states(made: Run, check: str, setting: str = "default") -> dict[str, str]:
    return {each.dtype: each.state for each in of(made, check, setting)}


def newer(machine: Path) -> Path:
    """The machine with a torch that may give the CTC loss to MIOpen."""
    machine.write_text(machine.read_text().replace("2.4.0+rocm6.1", "2.9.0+rocm6.4"))
    return machine


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    asked = (*BELOW, *CONTROLS, *PRIMITIVES, *BATCH_NORM, "autocast-step")
    folder = tmp_path_factory.mktemp("healthy") / "out"
    return run(folder, "--device", "cpu", "--settings", "vendor-off", *only(*asked))


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A machine on which everything but plain convolution computes wrong numbers."""
    folder = tmp_path_factory.mktemp("wrong")
    machine = machine_file(
        folder / "machine.toml",
        {"library": "hip", "effect": "wrong", "operator": OWN_KERNELS},
        {"library": "miopen", "effect": "wrong", "operator": IN_MIOPEN},
        {"library": "miopen", "effect": "wrong", "problem": f"^{KIND}$"},
        first_call=60, steady=60,
    )  # fmt: skip
    asked = (*CONTROLS, *PRIMITIVES, *BATCH_NORM)
    return run(folder / "out", "--simulate", newer(machine), "--settings", "vendor-off", *only(*asked))


class TestHealthy:
    @pytest.mark.parametrize("check", [*BELOW, *CONTROLS, *PRIMITIVES, *BATCH_NORM, "autocast-step"])
    def test_every_check_is_right_on_this_cpu(self, healthy: Run, check: str) -> None:
        found = of(healthy, check)
        assert {each.state for each in found} <= {"pass", "n/a"}
        assert "float32" in {each.dtype for each in found} or check == "autocast-step"
        for outcome in found:
            # Only a kernel that this torch or CPU lacks is left out, with the reason.
            if outcome.state == "n/a":
                assert outcome.dtype in ("float16", "bfloat16") or check.startswith("convolution-")
                assert outcome.evidence
            elif "max_error" in outcome.numerics:
                assert outcome.numerics["max_error"] <= outcome.numerics["max_error_limit"]

    @pytest.mark.parametrize("check", BELOW)
    def test_the_lower_rungs_are_asked_in_every_dtype(self, healthy: Run, check: str) -> None:
        assert set(states(healthy, check)) == {"float32", "float16", "bfloat16", "float64"}

    @pytest.mark.parametrize("check", [*PRIMITIVES, *BATCH_NORM])
    def test_what_enters_the_library_is_asked_without_it_too(self, healthy: Run, check: str) -> None:
        with_library = {(each.problem, each.direction, each.dtype) for each in of(healthy, check)}
        without = {(each.problem, each.direction, each.dtype) for each in of(healthy, check, "vendor-off")}
        assert with_library == without
        # The bfloat16 convolution of torch 1.13.1 on a CPU rounds its sums.
        states_without = {
            each.state
            for each in of(healthy, check, "vendor-off")
            if not (OLD_TORCH and each.dtype == "bfloat16")
        }
        assert states_without <= {"pass", "n/a"}

    def test_kinds_of_convolution_have_each_direction_apart(self, healthy: Run) -> None:
        asked = [(each.problem or "", each.direction) for each in of(healthy, "convolution-kinds")]
        kinds = {problem.partition("-")[0] for problem, _ in asked}
        assert kinds == {"conv1d", "conv2d", "conv3d", "conv_transpose2d"}
        assert len(asked) == 3 * len({problem for problem, _ in asked})

    def test_it_is_nothing_to_report(self, healthy: Run) -> None:
        assert healthy.ended.returncode == 0, healthy.ended.stdout
        assert healthy.results.findings == ()


class TestWrong:
    # One wrong element does not reach a mean or a share; tests/worker/test_operators.py plants other faults.
    @pytest.mark.parametrize(
        "check", [each for each in CONTROLS if each not in ("instance-norm", "losses", "dropout")]
    )
    def test_a_control_notices_a_wrong_kernel(self, wrong: Run, check: str) -> None:
        found = states(wrong, check)
        # A new control fails here until OWN_KERNELS has an operator (aten) that it calls.
        assert found["float32"] == "wrong", f"OWN_KERNELS has no operator that {check} calls"
        assert set(found.values()) <= {"wrong", "n/a"}

    def test_instance_norm_without_weights_never_enters_miopen(self, wrong: Run) -> None:
        float16 = "n/a" if OLD_TORCH else "pass"
        assert states(wrong, "instance-norm") == {"float32": "pass", "float16": float16}

    @pytest.mark.parametrize("check", [*RECURRENT, *BATCH_NORM, "ctc-loss"])
    def test_a_layer_notices_a_wrong_library(self, wrong: Run, check: str) -> None:
        found = states(wrong, check)
        assert found.pop("float32") == "wrong"
        # PyTorch keeps these from MIOpen.
        assert {found[dtype] for dtype in ("float64", "bfloat16") if dtype in found} == {"pass"}
        assert found.get("float16", "wrong") in ("wrong", "n/a")

    @pytest.mark.parametrize("check", [*RECURRENT, *BATCH_NORM, "ctc-loss"])
    def test_it_holds_without_the_library(self, wrong: Run, check: str) -> None:
        assert set(states(wrong, check, "vendor-off").values()) <= {"pass", "n/a"}

    def test_a_kind_of_convolution_notices_it(self, wrong: Run) -> None:
        found = {each.problem: each.state for each in of(wrong, "convolution-kinds")}
        bad = {problem for problem, state in found.items() if state == "wrong"}
        assert bad == {KIND}

    @pytest.mark.parametrize("check", ["convolution-relu", "convolution-add-relu"])
    def test_what_only_miopen_has_is_not_applicable(self, wrong: Run, check: str) -> None:
        assert {each.state for each in of(wrong, check)} == {"n/a"}
        assert "a simulated machine has no substitute for this operator" in of(wrong, check)[0].evidence[0]
        assert states(wrong, check, "vendor-off")["float32"] == "pass"

    def test_there_is_one_finding_for_each(self, wrong: Run) -> None:
        found = {each.id: each.layer for each in wrong.results.findings}
        assert found == {
            "controls": "torch-build", "batch-norm": "miopen-exec", "rnn": "miopen-exec",
            "lstm": "miopen-exec", "gru": "miopen-exec", "ctc-loss": "miopen-exec",
            "1-d-convolution": "miopen-exec",
        }  # fmt: skip


@pytest.mark.thorough
def test_a_step_under_autocast_notices_wrong_convolution_in_half_precision(tmp_path: Path) -> None:
    fault = {"library": "miopen", "effect": "wrong", "dtypes": ["float16", "bfloat16"]}
    machine = machine_file(tmp_path / "machine.toml", fault)
    asked = only("training-step", "autocast-step")
    made = run(tmp_path / "out", "--simulate", machine, "--settings", "vendor-off", *asked)
    assert states(made, "training-step") == {"float32": "pass"}
    assert states(made, "autocast-step")["bfloat16"] == "wrong"
    assert set(states(made, "autocast-step").values()) <= {"wrong", "n/a"}
    assert set(states(made, "autocast-step", "vendor-off").values()) <= {"pass", "n/a"}
    assert [finding.id for finding in made.results.findings] == ["autocast-step"]


def test_an_older_torch_keeps_the_ctc_loss_from_miopen(tmp_path: Path) -> None:
    fault = {"library": "miopen", "operator": "ctc_loss", "effect": "raise", "message": STATUS}
    machine = machine_file(tmp_path / "machine.toml", fault)
    made = run(tmp_path / "out", "--simulate", machine, "--settings", "default,", *only("ctc-loss"))
    assert set(states(made, "ctc-loss").values()) == {"pass"}
