"""A killed controller leaves neither what its trials have started nor a folder."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runs import environment, wait_until

from rocmprobe.process.guardian import Guardian

#: Stands in for torch: starts what a library that compiles would, and stays.
TORCH = """
import subprocess, time
from pathlib import Path
helper = subprocess.Popen(["sleep", "600"])
Path(__file__).with_name("helper").write_text(f"{helper.pid}\\n")
time.sleep(600)
"""
#: A controller with one trial. `as-found` is spawned, with the whole environment.
CONTROLLER = """
import sys
from pathlib import Path
from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.budgets import BUDGETS
from rocmprobe.engine.journal import Journal
from rocmprobe.engine.setup import Setup
from rocmprobe.engine.targets import Device
from rocmprobe.engine.trial import Trials
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.options import RunOptions

settings = {"cpu": settings_for("miopen", "all")}
setup = Setup(RunOptions(), (Device("cpu", "miopen"),), settings, BUDGETS["quick"])
trials = Trials(setup, Journal(Path(sys.argv[1]), redact=False))
trials.outcome(Case("cpu", "as-found", "copy", "float32"))
"""


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        return "Z (zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_killed_controller_leaves_no_grandchild_and_no_folder(tmp_path: Path) -> None:
    package, folders = tmp_path / "torch", tmp_path / "tmp"
    package.mkdir()
    folders.mkdir()
    (package / "__init__.py").write_text(TORCH)
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(tmp_path)],
        env=environment({"PYTHONPATH": str(tmp_path), "TMPDIR": str(folders)}),
        start_new_session=True,
    )
    written = package / "helper"
    assert wait_until(lambda: written.exists() and written.read_text().endswith("\n"))
    helper = int(written.read_text())
    assert alive(helper)
    assert list(folders.iterdir())
    controller.kill()
    controller.wait()
    assert wait_until(lambda: not alive(helper), 10)
    assert wait_until(lambda: not list(folders.iterdir()), 10)


def test_a_killed_process_leaves_no_tool_that_it_ran(tmp_path: Path) -> None:
    written = tmp_path / "tool"
    # More than a pipe holds: once it is read, the guardian knows of the tool.
    tool = ["sh", "-c", f"head -c 200000 /dev/zero; echo $$ > {written}; sleep 600"]
    code = f"import os; from rocmprobe.process import children; children.run({tool}, os.environ, 600)"
    process = subprocess.Popen([sys.executable, "-c", code])
    assert wait_until(lambda: written.exists() and written.read_text().endswith("\n"))
    pid = int(written.read_text())
    assert alive(pid)
    process.kill()
    process.wait()
    assert wait_until(lambda: not alive(pid), 10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir()
    (made / "database").touch()
    return made


def test_only_what_is_watched_is_killed_whatever_reaches_the_guardian_first(folder: Path) -> None:
    helpers = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2)]
    guardian = Guardian()
    guardian.remove(folder)
    for helper in helpers:
        guardian.watch(helper.pid)
    guardian.forget(helpers[1].pid)
    status = Path(f"/proc/{guardian._process.pid}/status")
    ignored = 1 << (signal.SIGTERM - 1)
    assert wait_until(lambda: int(status.read_text().partition("SigIgn:")[2].split()[0], 16) & ignored)
    guardian._process.send_signal(signal.SIGTERM)
    guardian._process.communicate()
    assert helpers[0].wait(10) == -signal.SIGKILL
    assert not folder.exists()
    assert helpers[1].poll() is None
    helpers[1].kill()
    helpers[1].wait()


def test_a_guardian_that_was_killed_costs_the_run_nothing(folder: Path) -> None:
    guardian = Guardian()
    guardian.remove(folder)
    guardian._process.kill()
    guardian._process.wait()
    guardian.watch(1 << 30)
    assert folder.exists()
