"""A GPU that hangs under ``check`` and ``run``: files that block, and processes that survive SIGKILL.

A debugger makes a process unkillable: if the debugger asked to see the exit (PTRACE_O_TRACEEXIT), a killed
process waits there for the debugger, as a process in a hung driver waits for the driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from runs import PROBLEM, Background, Started, journal, machine_file, run, wait_until

from rocmprobe.model.results_file import read_results

#: Blocks whoever lists the PCI devices. Python imports a module of this name at its start.
_BLOCKING_SYSFS = """\
import os, threading
listed = os.listdir
def listdir(path="."):
    if os.fspath(path) == "/sys/bus/pci/devices":
        threading.Event().wait()
    return listed(path)
os.listdir = listdir
"""
#: Attaches to a process (PTRACE_SEIZE with PTRACE_O_TRACEEXIT) and stays until its input ends.
_DEBUGGER = """\
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
print(libc.ptrace(0x4206, int(sys.argv[1]), None, 0x40), flush=True)
sys.stdin.read()
"""
#: Seconds by which a check can exceed its budget on a loaded machine.
_OVER = 2.0


@contextlib.contextmanager
def unkillable(pid: int) -> Iterator[None]:
    """Make SIGKILL have no effect on a process in the ``with`` block."""
    command = [sys.executable, "-c", _DEBUGGER, str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as debugger:
        assert debugger.stdout
        if debugger.stdout.readline().strip() != "0":
            pytest.skip("this system allows no debugger")
        yield
        # The debugger ends here, and the kernel detaches it.
        debugger.communicate()


@pytest.fixture(scope="module", autouse=True)
def needs_unkillable_processes() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeping, unkillable(sleeping.pid):
        for _ in range(3):
            os.kill(sleeping.pid, signal.SIGKILL)
            time.sleep(0.1)
        if state(sleeping.pid) != "t":
            pytest.skip("on this kernel, a second SIGKILL ends a process that a debugger holds")


def state(pid: int) -> str:
    """Return the state of a process in /proc, or "" if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def found(started: Started, find: Callable[[], list[int]]) -> int:
    """Wait for a process and return its id."""
    pids: list[int] = []
    assert started.reaches(lambda: pids.extend(find()) or pids)
    return pids[0]


def ended_check(started: Started) -> dict[str, object]:
    verdict = json.loads(started.process.communicate(timeout=60)[0])
    assert verdict["seconds"] <= verdict["budget"] + _OVER
    return {**verdict, "code": started.process.returncode}


def blocked_check(tmp_path: Path) -> Started:
    (tmp_path / "sitecustomize.py").write_text(_BLOCKING_SYSFS)
    return Started("check", "--json", "--device", "cpu", "--budget", "4", env={"PYTHONPATH": str(tmp_path)})


def test_detection_that_cannot_be_killed_is_a_problem_that_needs_a_restart(tmp_path: Path) -> None:
    started = blocked_check(tmp_path)
    with unkillable(found(started, lambda: children(started.process.pid))):
        verdict = ended_check(started)
        assert (verdict["state"], verdict["reason"], verdict["code"]) == ("problem", "hang", 4)
        assert "a process cannot be killed during the start; restart the machine" in str(verdict["verdict"])
    assert wait_until(lambda: not started.alive(), 10)


@pytest.mark.thorough
def test_a_worker_that_cannot_be_killed_ends_a_check_with_its_budget(tmp_path: Path) -> None:
    fault = {"library": "miopen", "effect": "hang", "phase": "import"}
    machine = machine_file(tmp_path / "machine.toml", fault)
    started = Started("check", "--json", "--simulate", machine, "--budget", "8")
    with unkillable(found(started, lambda: workers(started, "rocmprobe.worker "))):
        verdict = ended_check(started)
        assert (verdict["state"], verdict["reason"], verdict["code"]) == ("problem", "hang", 4)
        assert str(verdict["verdict"]).startswith("problem: hang")
        assert verdict["failed"] == [verdict["not_checked"][0]]
    assert wait_until(lambda: not started.alive(), 10)


def workers(started: Started, module: str) -> list[int]:
    return [pid for pid in started.alive() if module in f"{command_line(pid)} "]


@pytest.mark.thorough
def test_a_worker_that_cannot_be_killed_ends_a_run_with_exit_code_4(tmp_path: Path) -> None:
    """The fork server forks the worker, which hangs in its first convolution."""
    fault = {"library": "miopen", "effect": "hang", "problem": PROBLEM}
    machine = machine_file(tmp_path / "machine.toml", fault, first_call=3)
    only = ("--only", "*/convolution/*", "--only", "gemm", "--purpose", "inference", "--problem", PROBLEM)
    run = Background(tmp_path / "out", "--simulate", machine, "--settings", "vendor-off", *only)

    def forked() -> list[int]:
        waits = [record for record in journal(run.folder) if record["record"] == "waiting"]
        servers = workers(run, "rocmprobe.worker.server") if waits else []
        return [pid for server in servers for pid in children(server)]

    with unkillable(found(run, forked)):
        printed = run.process.communicate(timeout=120)[0]
        assert run.process.returncode == 4, printed
        outcomes = {outcome.id: outcome for outcome in read_results(run.folder / "results.json").outcomes}
        hang = next(outcome for outcome in outcomes.values() if outcome.state == "hang")
        assert (hang.check, hang.setting, hang.failure) == ("convolution", "default", "timeout")
        assert hang.ending["status"] == "unkillable"
        assert {o.failure for o in outcomes.values() if o.state == "blocked"} == {"gpu-wedged"}
    assert wait_until(lambda: not run.alive(), 15)


@pytest.mark.thorough
@pytest.mark.parametrize("below", [("--only", "copy"), ()], ids=["copy", "nothing"])
def test_a_kernel_that_never_ended_is_cured_because_its_hang_does_not_prove_that_the_gpu_is_lost(
    tmp_path: Path, below: tuple[str, ...]
) -> None:
    fault = {
        "library": "hip", "effect": "hang", "operator": "^(add|mul|neg|sum|im2col)",
        "unless": {"HSA_ENABLE_INTERRUPT": "0"},
    }  # fmt: skip
    machine = machine_file(tmp_path / "machine.toml", fault, first_call=3, steady=3)
    ended = run(tmp_path / "out", "--simulate", machine, *below, "--only", "elementwise", "--only", "gemm")
    assert ended.states["cuda:0/default/elementwise/float32"] == "hang"
    assert ended.states["cuda:0/no-interrupt/gemm/float32"] == "pass"
