"""Ctrl-C and SIGTERM: the children end, and what was learned is written and marked partial."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from runs import SMALL, Background, journal, machine_file, wait_until

from rocmprobe.model import read_results


@pytest.mark.parametrize("way", [Background.interrupt, Background.terminate], ids=["ctrl-c", "sigterm"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_children_end_and_a_partial_report_is_written(
    tmp_path: Path, workers: int, way: Callable[[Background], str]
) -> None:
    machine = machine_file(tmp_path / "machine.toml", {"library": "miopen", "effect": "hang"})
    folder = tmp_path / "out"
    arguments = [argument.replace("convolution", "*fwd") for argument in SMALL]
    stuck = Background(folder, "--simulate", machine, "--only", "*/copy/float32", *arguments, "-n", workers)
    assert stuck.reaches(
        lambda: any(r["record"] == "intent" and "/default/conv" in r["case"] for r in journal(folder))
    )
    printed = way(stuck)
    assert stuck.process.returncode == 130
    assert "Traceback" not in printed
    assert "Partial run" in printed
    assert wait_until(lambda: not stuck.alive(), 5), "processes outlive the run"
    results = read_results(folder / "results.json")
    assert results.partial
    assert [outcome.state for outcome in results.outcomes if outcome.check == "copy"] == ["pass"]
    assert "Partial run" in (folder / "report.html").read_text("utf-8")


#: Stands in for torch: tells that it is there, and takes its time when it is asked to end.
STUBBORN = """
import signal, time
from pathlib import Path
here = Path(__file__).parent

def late(number, frame):
    time.sleep(2)
    (here / "late").touch()

signal.signal(signal.SIGTERM, late)
(here / "started").touch()
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize("way", [Background.interrupt, Background.terminate], ids=["ctrl-c", "sigterm"])
def test_a_child_that_ignores_sigterm_is_not_waited_for(
    tmp_path: Path, way: Callable[[Background], str]
) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(STUBBORN)
    (package / "version.py").write_text("__version__ = '2.4.0'\n")
    # A child of `as-found` is spawned with the user's whole environment.
    stuck = Background(
        tmp_path / "out", "--device", "cpu", "--settings", "as-found", "--only", "*/as-found/*",
        env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert stuck.reaches((package / "started").exists)
    way(stuck)
    assert stuck.process.returncode == 130
    assert wait_until(lambda: not stuck.alive(), 5), "processes outlive the run"
    assert not (package / "late").exists()
