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
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from runs import PROBLEM, SMALL, environment, machine_file, rocmprobe, wait_until

from rocmprobe.checks.tools.case import Case
from rocmprobe.cli.progress import Progress
from rocmprobe.cli.time_left import TimeLeft
from rocmprobe.engine.journal import NAME, Journal, records
from rocmprobe.engine.lease import DeviceLease

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
        re.fullmatch(r"1 of 2, (1 failed, )?no answer, stopped in [0-4] s: default convolution", line)
        for line in lines
    )
    assert any(line.startswith("[hang]") and PROBLEM in line for line in lines)
    assert re.search(r"^2 cases in \S+ s: 1 passed, 1 failed$", done.stdout, re.MULTILINE)

    waits = [record for record in records(tmp_path / "out") if record["record"] == "waiting"]
    assert {(wait["phase"], wait["left"]) for wait in waits if PROBLEM in wait["case"]} >= {
        ("first-call", 4.0),
        ("first-call", 0),
    }


def test_who_waits_for_a_device_says_so_again_and_again_and_then_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    question = Case("cpu", "default", "copy", "float32")
    journal = Journal(tmp_path, redact=False)
    journal.append(
        "run", options={"level": "quick", "settings": "default"}, settings={"cpu": [
            {"name": "default", "reason": "", "verdict": "native"}
        ]},
        targets=[{"device": "cpu", "backend": "onednn"}], rocmprobe="0", started="", folder="", machine={},
        simulation=None,
    )  # fmt: skip
    printed = io.StringIO()
    shown = Progress(Console(file=printed, width=200), tmp_path, every=0.2)
    shown.pytest_sessionstart(SimpleNamespace(config=SimpleNamespace(option=SimpleNamespace())))  # type: ignore[arg-type]
    lease = DeviceLease("cpu", Path("/runs/another"))
    lease.take()
    journal.append("plan", cases=[question.id])
    journal.intent(question)
    journal.append("waiting", case=question.id, phase="device", left=None)
    words = f"waiting for run /runs/another (pid {os.getpid()}) on cpu since "
    assert wait_until(lambda: printed.getvalue().count(words) >= 3, 30)
    lease.release()
    assert wait_until(lambda: "waiting for another run on cpu\n" in printed.getvalue(), 30)
    journal.append("waiting", case=question.id, phase="device", left=0)
    assert wait_until(lambda: "left: default copy\n" in printed.getvalue(), 30)
    shown.pytest_sessionfinish()


def estimate(case_ids: list[str], measure: float, workers: int = 1) -> float:
    return TimeLeft(measure, 120.0).of(case_ids, workers)


def test_the_estimate_grows_with_questions_children_and_measurements() -> None:
    one = estimate(["cpu/default/convolution/x/fwd"], 1.0)
    same_child = estimate([f"cpu/default/convolution/x{n}/fwd" for n in range(2)], 1.0)
    own_child = estimate([f"cpu/{name}/convolution/x/fwd" for name in ("default", "cpu")], 1.0)
    timed = estimate([f"cpu/{name}/throughput/x" for name in ("default", "cpu")], 1.0)
    assert one < same_child < own_child < timed
    several = estimate([f"cpu/{name}/convolution/x/fwd" for name in ("default", "cpu")], 1.0, 2)
    started = estimate(["cpu/default/start-up/x", "cpu/default/start-up/y"], 1.0)
    once = estimate(["cpu/default/start-up/x"], 1.0)
    taken = estimate(["cpu/default/memory/x", "cpu/default/memory/y"], 1.0)
    assert started - once > taken - estimate(["cpu/default/memory/x"], 1.0)
    assert one <= several < own_child
    assert timed < estimate([f"cpu/{name}/throughput/x" for name in ("default", "cpu")], 2.0)


def test_what_was_answered_tells_of_the_rest() -> None:
    left = [f"cpu/default/convolution/x{n}/fwd" for n in range(10)]
    time_left = TimeLeft(0.5, 120.0)
    guessed = time_left.of(left)
    time_left.add_finished("cpu/default/convolution/y/fwd", 40.0)
    time_left.add_finished("cpu/default/convolution/z/fwd", 20.0)
    assert time_left.of(left) == 300.0 > guessed
    # A check that was not asked yet is as much slower than the guess.
    assert time_left.of(["cpu/default/training-step/float32"]) == pytest.approx(300 * 2.0)
    assert time_left.of([]) == 0.0


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
    progress = Progress(Console(file=printed, width=200), tmp_path)
    plan = {"record": "plan", "at": 0.0, "cases": [f"cuda:0/default/convolution/{GOOD}/fwd"]}
    with (tmp_path / NAME).open("a", encoding="utf-8") as journal:
        journal.write(f"{json.dumps(plan)}\n")
    progress.pytest_collection_finish()
    assert re.match(r"1 case; at least \d+ s, more while", printed.getvalue())


def test_a_terminal_shows_one_live_line_and_each_failure_once(tmp_path: Path) -> None:
    fault = {"library": "miopen", "effect": "raise", "message": "it failed [red]"}
    machine = machine_file(tmp_path / "machine.toml", fault)
    shown = on_terminal(60, "run", "--simulate", machine, *SMALL[:-2], "--out", tmp_path / "out")
    # A carriage return begins the line again.
    live = [line for line in re.split(r"[\r\n]", shown) if re.search(r"\d/6 ", line)]
    assert live, shown
    assert max(map(len, live)) <= 60
    failures = [line for line in re.split(r"[\r\n]", shown) if line.startswith("✕ default convolution")]
    assert len(failures) == 1
    assert "it failed…" in failures[0]
    assert "[red]" in shown  # no markup of rich
    lines = shown.splitlines()
    begins = next(place for place, line in enumerate(lines) if "SIMULATED" in line)
    assert len(lines) - begins <= 25


def on_terminal(width: int, *arguments: object) -> str:
    """Run the command line on a terminal of ``width`` columns. Return its output without colour codes."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    command = [sys.executable, "-m", "rocmprobe", *map(str, arguments)]
    process = subprocess.Popen(
        command, env=environment({"TERM": "xterm"}), stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    written = b""
    # Reading fails when the last process closes the terminal.
    with contextlib.suppress(OSError):
        while part := os.read(leader, 65536):
            written += part
    process.wait(60)
    os.close(leader)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())


def test_quiet_is_the_verdict_alone_and_contradicts_verbose(tmp_path: Path) -> None:
    machine = machine_file(tmp_path / "machine.toml")
    arguments = ("run", "--simulate", machine, *SMALL, "--out", tmp_path / "out")
    ended = rocmprobe(*arguments, "-q")
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"Verdict: .*\n", ended.stdout)
    refused = rocmprobe(*arguments, "-q", "-v")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
