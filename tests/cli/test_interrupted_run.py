"""Ctrl-C, SIGTERM and SIGHUP at any moment: the children end, and what was learned is written and marked
partial."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import SMALL, Background, environment, journal, kinds, machine_file, resume, wait_until

from rocmprobe.engine.lease import DeviceLease
from rocmprobe.model.results_file import read_results


@pytest.mark.parametrize(
    "way",
    [Background.interrupt, pytest.param(Background.terminate, marks=pytest.mark.thorough)],
    ids=["ctrl-c", "sigterm"],
)
@pytest.mark.parametrize("gpus", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_the_children_end_and_a_partial_report_is_written(
    tmp_path: Path, gpus: int, way: Callable[[Background], str]
) -> None:
    machine = machine_file(tmp_path / "machine.toml", {"library": "miopen", "effect": "hang"}, gpus=gpus)
    folder = tmp_path / "out"
    ignored = (signal.SIGINT,) if way is Background.terminate else ()
    arguments = [argument.replace("convolution", "*fwd") for argument in SMALL]
    stuck = Background(
        folder,
        "--simulate",
        machine,
        "--device",
        "all",
        "--only",
        "*/copy/float32",
        *arguments,
        ignored=ignored,
    )
    assert stuck.reaches(
        lambda: sum(r["record"] == "intent" and "/default/conv" in r["case"] for r in journal(folder)) == gpus
    )
    printed = way(stuck)
    assert stuck.process.returncode == 130
    assert "Traceback" not in printed
    assert "Partial run" in printed
    assert wait_until(lambda: not stuck.alive(), 5), "processes outlive the run"
    results = read_results(folder / "results.json")
    assert results.partial
    assert f"{results.not_reached} not reached" in printed
    assert [outcome.state for outcome in results.outcomes if outcome.check == "copy"] == ["pass"] * gpus
    assert results.recommendation is not None
    assert results.recommendation.verdict == "not-judged"
    assert results.recommendation.sentence.endswith("; convolution was not tested.")
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


@pytest.mark.thorough
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


#: A tool that detection asks, and that never answers.
SLOW_TOOL = """#!/bin/sh
touch "$0.started"
exec sleep 600
"""


#: Loaded as Python starts: a page that takes its time.
SLOW_PAGE = """
import pathlib, time
from rocmprobe.report.page import html
page = html.page
def slow_page(summary):
    if not summary.live:
        pathlib.Path({mark!r}).touch()
        time.sleep(2)
    return page(summary)
html.page = slow_page
"""


def moments(tmp_path: Path, folder: Path) -> dict[str, Callable[[], object]]:
    """When a run is, or is past, what its name says."""
    return {
        "in detection": (tmp_path / "rocminfo.started").exists,
        "waiting for a device": lambda: "waiting" in kinds(folder),
        "in the report": (tmp_path / "reporting").exists,
    }


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["in detection", "waiting for a device", "in the report"])
def test_sigterm_ends_a_run_that_ignores_ctrl_c_in_order(tmp_path: Path, moment: str) -> None:
    folder = tmp_path / "out"
    machine = machine_file(tmp_path / "machine.toml")
    env = {"XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    if moment == "in detection":
        tool = tmp_path / "rocminfo"
        tool.write_text(SLOW_TOOL)
        tool.chmod(0o755)
        env["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    if moment == "in the report":
        (tmp_path / "sitecustomize.py").write_text(SLOW_PAGE.format(mark=str(tmp_path / "reporting")))
        env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    lease = DeviceLease("cpu", tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        if moment == "waiting for a device":
            lease.take()
    device = ("--device", "cpu") if moment == "waiting for a device" else ("--simulate", machine)
    run = Background(folder, *device, *SMALL, env=env, ignored=(signal.SIGINT,))
    assert run.reaches(moments(tmp_path, folder)[moment])
    # Ignored, as it was at the start.
    os.killpg(run.process.pid, signal.SIGINT)
    printed = run.terminate()
    lease.release()
    assert run.process.returncode == 130, printed
    assert "Traceback" not in printed
    assert wait_until(lambda: not run.alive(), 5), "processes outlive the run"
    assert not list(tmp_path.glob("rocmprobe-[0-9]*")), "folders outlive the run"
    if moment == "in detection":
        assert not folder.exists()
        return
    assert read_results(folder / "results.json").partial == (moment != "in the report")
    resumed = resume(folder)
    assert resumed.ended.returncode == 0, resumed.ended.stderr
    assert not resumed.results.partial
    assert {outcome.state for outcome in resumed.outcomes.values()} <= {"pass", "aborted"}


@pytest.mark.thorough
@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP,)], ids=["taken", "ignored"])
def test_a_terminal_that_closes_ends_a_run_unless_it_is_to_outlive_it(
    tmp_path: Path, ignored: tuple[signal.Signals, ...]
) -> None:
    folder = tmp_path / "out"
    machine = machine_file(tmp_path / "machine.toml", {"library": "miopen", "effect": "hang"})
    run = Background(folder, "--simulate", machine, *SMALL, ignored=ignored)
    assert run.reaches(lambda: "waiting" in kinds(folder))
    if ignored:
        run.process.send_signal(signal.SIGHUP)
        run.terminate()
    else:
        run.end(signal.SIGHUP)
    assert run.process.returncode == 130
    assert read_results(folder / "results.json").partial
    assert wait_until(lambda: not run.alive(), 5), "processes outlive the run"


def test_a_signal_while_a_dataclass_is_made_ends_a_command_by_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(
        "from rocmprobe.cli.base import exit_code_command\n"
        "code = 'import os, signal; os.kill(os.getpid(), signal.SIGINT); dict()'\n"
        "exit_code_command(lambda: exec(code))()\n"
    )
    done = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, check=False)
    assert done.returncode == 130


@pytest.mark.parametrize("module", ["click", "rocmprobe.detect.machine"])
def test_ctrl_c_during_an_import_is_one_line(tmp_path: Path, module: str) -> None:
    """Also while Python imports the command, and inside it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(name, *rest):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "rocmprobe", "detect"], env=environment({"PYTHONPATH": str(tmp_path)}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "rocmprobe: interrupted\n")
