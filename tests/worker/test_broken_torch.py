"""A torch that cannot be imported is an outcome, whatever it does to the process."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import Run, machine_file, run


def with_torch(folder: Path, program: str, *arguments: object) -> Run:
    """A run under a torch package whose import does ``program``."""
    package = folder / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(program)
    (package / "version.py").write_text("__version__ = '2.4.0'\ncuda = None\nhip = None\n")
    rungs = ("--only", "copy", "--only", "elementwise", "--settings", "vendor-off")
    return run(folder / "out", *rungs, *arguments, env={"PYTHONPATH": str(folder)})


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "state", "cause", "message"),
    [
        ("raise OSError('libamdhip64.so.5: cannot open')", "error", "torch-unusable",
         "import torch: OSError: libamdhip64.so.5: cannot open"),
        ("import os; os._exit(7)", "crash", "exit",
         "the process ended with exit code 7 while importing torch"),
        ("import os; os.abort()", "crash", "SIGABRT", "the process ended with SIGABRT while importing torch"),
    ],
)  # fmt: skip
def test_an_import_that_fails_is_told_and_the_device_is_not_blamed(
    tmp_path: Path, program: str, state: str, cause: str, message: str
) -> None:
    broken = with_torch(tmp_path, program, "--device", "cpu")
    assert broken.ended.returncode == 1
    assert "Traceback" not in broken.ended.stderr
    copy = broken.outcomes["cpu/torch/default/copy/float32"]
    assert (copy.state, copy.failure, copy.phase) == (state, cause, "start")
    assert copy.evidence[0] == message
    others = [
        outcome for outcome in broken.outcomes.values() if outcome is not copy and outcome.id != copy.id
    ]
    assert {(outcome.state, outcome.failure) for outcome in others} == {("blocked", "rung:copy")}


@pytest.mark.thorough
def test_an_import_that_hangs_is_a_hang(tmp_path: Path) -> None:
    # Long against what a loaded processor takes to start Python, which counts as busy.
    machine = machine_file(tmp_path / "machine.toml", start=5)
    broken = with_torch(tmp_path, "import time; time.sleep(600)", "--simulate", machine)
    copy = broken.outcomes["cuda:0/torch/default/copy/float32"]
    assert (copy.state, copy.phase, copy.activity) == ("hang", "start", "idle")
    assert any("torch/__init__.py" in line for line in copy.evidence)
