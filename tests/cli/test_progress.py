"""Output of a run while it goes on, to a program and on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from dataclasses import replace
from pathlib import Path

import pytest
from runs import PROBLEM, SMALL, environment, machine_file, rocmprobe, wait_until

from rocmprobe.checks.tools.case import Case
from rocmprobe.cli.progress import Progress
from rocmprobe.cli.time_left import TimeLeft
from rocmprobe.engine.budgets import BUDGETS
from rocmprobe.engine.journal import NAME, Journal, Plan, Run, Waiting, records
from rocmprobe.engine.lease import DeviceLease
from rocmprobe.engine.targets import Device
from rocmprobe.model.options import RunOptions
from rocmprobe.model.results import Machine, Setting
from rocmprobe.text.console import Console

#: The command line with little patience for silence.
_IMPATIENT = """\
import functools
from rocmprobe import cli
from rocmprobe.cli import progress
progress.Progress = functools.partial(progress.Progress, every=0.5)
cli.main()
"""
GOOD = "conv2d-fp32-n1-c2-i8x8-k4-f3x3"


@pytest.mark.thorough
def test_a_run_says_what_it_will_take_what_it_waits_for_and_what_it_took(tmp_path: Path) -> None:
    fault = {"library": "miopen", "effect": "hang", "problem": PROBLEM}
    machine = machine_file(tmp_path / "machine.toml", fault, first_call=6)
    arguments = ["--only", "*/default/convolution/*", "--purpose", "inference"]
    # A folder of its own: in another, a run that some other test killed may have left something to tell of.
    with tempfile.TemporaryDirectory() as temporary:
        done = subprocess.run(
            [
                sys.executable, "-c", _IMPATIENT, "run", "-v", "--simulate", str(machine), *arguments,
                "--problem", GOOD, "--problem", PROBLEM, "--out", str(tmp_path / "out"),
            ],
            env=environment({"TMPDIR": temporary}), capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    lines = done.stdout.partition("SIMULATED")[0].splitlines()
    assert "\x1b" not in done.stdout
    assert re.fullmatch(r"2 cases; about \d+ s if nothing hangs", lines[0])
    right = [line for line in lines if line.startswith("[pass]")]
    assert [line.split() for line in right] == [["[pass]", "default", "convolution", GOOD, "fwd"]]
    assert any(
        re.fullmatch(
            r"1 of 2, (1 failed, )?no answer, stopped in [0-4] s, at most \d+ s left: default convolution",
            line,
        )
        for line in lines
    )
    assert any(line.startswith("[hang]") and PROBLEM in line for line in lines)
    assert re.search(r"^2 cases in \S+ s: 1 passed, 1 failed \(1 hang\)$", done.stdout, re.MULTILINE)

    waits = [record for record in records(tmp_path / "out") if isinstance(record, Waiting)]
    assert {(wait.phase, wait.left) for wait in waits if PROBLEM in wait.case} >= {
        ("first-call", 4.0),
        ("first-call", 0),
    }


def test_who_waits_for_a_device_says_so_again_and_again_and_then_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    question = Case("cpu", "default", "copy", "float32")
    journal = Journal(tmp_path, redact=False)
    settings = {"cpu": (Setting("default", "", "native"),)}
    journal.append(Run("0", "", RunOptions(), Machine(), (Device("cpu", "onednn"),), settings, None, ""))
    printed = io.StringIO()
    shown = Progress(tmp_path, console=Console(file=printed, width=200), every=0.2)
    with shown:
        lease = DeviceLease("cpu", Path("/runs/another"))
        lease.take()
        journal.append(Plan((question.id,)))
        journal.intent(question)
        journal.append(Waiting(question.id, "device", None))
        words = f"waiting for run /runs/another (pid {os.getpid()}) on cpu since "
        assert wait_until(lambda: printed.getvalue().count(words) >= 3, 30)
        lease.release()
        assert wait_until(lambda: "waiting for another run on cpu\n" in printed.getvalue(), 30)
        journal.append(Waiting(question.id, "device", 0))
        assert wait_until(lambda: "left: default copy\n" in printed.getvalue(), 30)


def test_the_estimate_grows_with_cases_children_and_measurements() -> None:
    def estimate(*case_ids: str, workers: int = 1) -> float:
        return TimeLeft(BUDGETS["quick"]).of(case_ids, {}, workers)[0]

    one = estimate("cpu/default/convolution/x/fwd")
    same_child = estimate(*(f"cpu/default/convolution/x{n}/fwd" for n in range(2)))
    pair = [f"cpu/{name}/convolution/x/fwd" for name in ("default", "cpu")]
    own_child = estimate(*pair)
    timed = estimate(*(f"cpu/{name}/throughput/x" for name in ("default", "cpu")))
    assert one < same_child < own_child < timed
    assert one <= estimate(*pair, workers=2) < own_child


def test_the_estimate_learns_from_the_first_cases_of_a_kind() -> None:
    left = [f"cpu/default/convolution/x{n}/fwd" for n in range(10)]
    time_left = TimeLeft(BUDGETS["quick"])
    guessed, _ = time_left.of(left, {})
    # The time of a child's first case includes the start of the child.
    for name, seconds in (("a", 40.0), ("b", 4.0), ("c", 2.0), ("d", 3.0)):
        time_left.add_finished(f"cpu/default/convolution/{name}/fwd", "pass", seconds)
    assert time_left.of(left, {}) == (30.0, False)
    assert guessed < 30.0
    # Another setting needs a new child, and its cases are expected to take as long.
    assert time_left.of([f"cpu/bypass/convolution/x{n}/fwd" for n in range(3)], {}) == (46.0, False)
    assert time_left.of([], {}) == (0.0, False)


def test_a_hang_makes_the_estimate_an_upper_limit_with_as_many_hangs_as_the_run_allows() -> None:
    budgets = replace(BUDGETS["quick"], hangs=3, first_call=100)
    time_left = TimeLeft(budgets)
    hanging, *left = [f"cuda:0/default/convolution/x{n}/fwd" for n in range(10)]
    usual, with_hangs = time_left.of([hanging, *left], {})
    assert not with_hangs
    # Each case is tried twice.
    assert time_left.of([hanging, *left], {hanging: 50.0}) == (usual + 3 * 200 - 50, True)
    time_left.add_finished(hanging, "hang", 150.0)
    assert time_left.of(left, {})[0] == pytest.approx(2 * 150, abs=10)
    assert time_left.of(left[:1], {})[0] == pytest.approx(150, abs=10)
    assert time_left.of(["cuda:0/vendor-off/convolution/x/fwd"], {}) == (pytest.approx(1.6), False)
    # The case that hung is expected to hang under other settings, too, until it has passed under one.
    again = [hanging.replace("default", name) for name in ("find-fast", "vendor-off")]
    assert time_left.of(again, {})[0] == pytest.approx(2 * 150, abs=10)
    time_left.add_finished(again[1], "pass", 1.0)
    assert time_left.of(again[:1], {})[0] == pytest.approx(150 / 2, abs=10)
    # After the last hang that is allowed, the other cases do not run.
    for case in left[:2]:
        time_left.add_finished(case, "hang", 150.0)
    assert time_left.of(left[2:], {}) == (0.0, False)


def test_on_a_gpu_the_estimate_is_a_lower_bound(tmp_path: Path) -> None:
    header = {
        "record": "run", "rocmprobe": "", "started": "", "folder": "", "machine": {}, "simulation": None,
        "options": {"level": "quick", "settings": "default"}, "settings": {
            "cuda:0": [{"name": "default", "reason": "", "verdict": "native"}]
        },
        "targets": [{"device": "cuda:0", "backend": "miopen"}],
    }  # fmt: skip
    (tmp_path / NAME).write_text(f"{json.dumps(header)}\n", "utf-8")
    printed = io.StringIO()
    plan = {"record": "plan", "at": 0.0, "cases": [f"cuda:0/default/convolution/{GOOD}/fwd"]}
    shown = Progress(tmp_path, console=Console(file=printed, width=200))
    with shown, (tmp_path / NAME).open("a", encoding="utf-8") as journal:
        journal.write(f"{json.dumps(plan)}\n")
    assert re.match(r"1 case; at least \d+ s, more while", printed.getvalue())


def test_a_terminal_shows_one_live_line_and_each_failure_once(tmp_path: Path) -> None:
    fault = {"library": "miopen", "effect": "raise", "message": "[red] failed here"}
    # The line is drawn each second, so one call takes longer.
    compiling = {"library": "miopen", "effect": "compile", "seconds": 2, "directions": ["fwd"]}
    machine = machine_file(tmp_path / "machine.toml", compiling, fault)
    shown = on_terminal(60, "run", "--simulate", machine, *SMALL[:-2], "--out", tmp_path / "out")
    # A carriage return begins the line again.
    live = [line for line in re.split(r"[\r\n]", shown) if re.search(r"\d/6 ", line)]
    assert live, shown
    assert max(map(len, live)) <= 60
    failures = [line for line in re.split(r"[\r\n]", shown) if line.startswith("✕ default convolution")]
    assert len(failures) == 1
    assert failures[0].endswith("…")
    assert "[red] fai" in failures[0]  # no markup of rich
    lines = shown.splitlines()
    begins = next(place for place, line in enumerate(lines) if "SIMULATED" in line)
    assert len(lines) - begins <= 25


def on_terminal(width: int, *arguments: object) -> str:
    """Run the command line on a terminal of ``width`` columns. Return its output without colour codes."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    command = [sys.executable, "-m", "rocmprobe", *map(str, arguments)]
    own = environment({"TERM": "xterm"})
    own.pop("COLUMNS", None)  # pytest-xdist sets it, and it outranks the terminal
    process = subprocess.Popen(command, env=own, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    written = b""
    # Reading fails when the last process closes the terminal.
    with contextlib.suppress(OSError):
        while part := os.read(leader, 65536):
            written += part
    process.wait(60)
    os.close(leader)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())


@pytest.mark.thorough
def test_quiet_is_the_verdict_alone_and_contradicts_verbose(tmp_path: Path) -> None:
    machine = machine_file(tmp_path / "machine.toml")
    arguments = ("run", "--simulate", machine, *SMALL, "--out", tmp_path / "out")
    ended = rocmprobe(*arguments, "-q")
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"Verdict: .*\n", ended.stdout)
    refused = rocmprobe(*arguments, "-q", "-v")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
