"""Faults that exist only for large batches or many channels: level quick has a case that meets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from asking import context as _context  # noqa: E402
from runs import machine_file  # noqa: E402

from rocmprobe.checks.at_size import convolution_at_size  # noqa: E402
from rocmprobe.checks.tools.context import CheckContext  # noqa: E402
from rocmprobe.checks.training import training_step  # noqa: E402
from rocmprobe.knowledge.settings import Versions, settings_for  # noqa: E402
from rocmprobe.model.problems import problems  # noqa: E402
from rocmprobe.simulate.gpu import SimulatedGpu  # noqa: E402
from rocmprobe.simulate.libraries import SimulatedMiopen, library_faults  # noqa: E402
from rocmprobe.simulate.machines import load_machine  # noqa: E402
from rocmprobe.worker.torch_driver import holding  # noqa: E402

LARGE_BATCH = {"library": "miopen", "effect": "wrong", "problem": r"-n(9|\d\d+)-"}
MANY_CHANNELS = {
    "library": "rocblas",
    "effect": "wrong",
    "problem": r"-[ck](256|512)-",
}


def context(folder: Path, fault: dict[str, str], problem: str, name: str, **changes: Any) -> CheckContext:
    """Return the context of a check on a machine whose libraries have ``fault``."""
    machine = load_machine(str(machine_file(folder / "machine.toml", fault)))
    gpu, backend = SimulatedGpu(machine, name, "cuda:0", -1), SimulatedMiopen(machine)
    setting = next(each for each in settings_for("miopen") if each.name == name)
    versions = Versions("MIOpen", None, torch.__version__, None)
    held = holding(setting, backend, library_faults(gpu), versions)
    return _context(problem, backend=backend, apply_setting=held, **changes)


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
    found = convolution_at_size(context(tmp_path, fault, problem.text, setting, direction=direction))
    assert found.state == "wrong"


def test_the_training_step_finds_a_fault_of_large_batches(tmp_path: Path) -> None:
    problem = problems("quick", "native")[0].text
    states = {
        name: training_step(context(tmp_path, LARGE_BATCH, problem, name)).state
        for name in ("default", "vendor-off")
    }
    assert states == {"default": "wrong", "vendor-off": "pass"}


def test_level_long_has_batch_32_and_2048_channels() -> None:
    rows = [each for each in problems("long", "sizes") if each.dtype == "float32"]
    assert max(each.batch for each in rows) == 32
    assert max(each.in_channels for each in rows) == 2048
