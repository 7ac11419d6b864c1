"""What a run prints while it goes on, as a program that is not a terminal reads it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from runs import PROBLEM, SMALL, environment, machine_file, run, wait_until

from rocmprobe.checks.tools.case import Case
from rocmprobe.cli.progress import Progress, TimeLeft
from rocmprobe.engine.journal import NAME, Journal, records
from rocmprobe.engine.lease import DeviceLease

#: The command line with little patience for silence.
_IMPATIENT = """\
import functools
from rocmprobe import cli
from rocmprobe.cli import progress
progress.Progress = functools.partial(progress.Progress, silence=0.5)
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
                sys.executable, "-c", _IMPATIENT, "run", "--simulate", str(machine), *arguments,
                "--problem", GOOD, "--problem", PROBLEM, "--out", str(tmp_path / "out"),
            ],
            env=environment({"TMPDIR": temporary}), capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    lines = done.stdout.partition("SIMULATED")[0].splitlines()
    assert "\x1b" not in done.stdout
    assert re.fullmatch(r"2 questions to this machine; about \d+ s if nothing hangs", lines[0])
    right = [line for line in lines if line.startswith("[pass]")]
    assert [line.split() for line in right] == [["[pass]", "default", "convolution", GOOD, "fwd"]]
    stuck = [line for line in lines if line.startswith("[running]") and PROBLEM in line]
    assert any(
        re.search(r"fwd +for \d+ s, silent in phase first-call, given up in [0-4] s$", s) for s in stuck
    )
    assert any(line.startswith("[hang]") and PROBLEM in line for line in lines)
    assert re.fullmatch(r"1 (pass, 1 hang|hang, 1 pass); \d+ s", lines[-2] if not lines[-1] else lines[-1])

    waits = [record for record in records(tmp_path / "out") if record["record"] == "waiting"]
    assert {(wait["phase"], wait["left"]) for wait in waits if PROBLEM in wait["case"]} >= {
        ("first-call", 4.0),
        ("first-call", 0),
    }


def test_who_waits_for_a_device_says_so_again_and_again_and_then_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    question = Case("cpu", "torch", "default", "copy", "float32")
    journal = Journal(tmp_path, redact=False)
    journal.append(
        "run", options={"level": "quick", "settings": "default"}, settings={"cpu": [
            {"name": "default", "reason": "", "verdict": "native"}
        ]},
        targets=[{"device": "cpu", "backend": "onednn"}], rocmprobe="0", started="", folder="", machine={},
        simulation=None, interpreter=None,
    )  # fmt: skip
    printed = io.StringIO()
    shown = Progress(Console(file=printed, width=200), tmp_path, silence=0.2)
    shown.pytest_sessionstart(SimpleNamespace(config=SimpleNamespace(option=SimpleNamespace())))  # type: ignore[arg-type]
    lease = DeviceLease(["cpu"], Path("/runs/another"))
    lease.take()
    journal.append("plan", cases=[question.id])
    journal.intent(question)
    journal.append("waiting", case=question.id, phase="device", left=None)
    words = f"waiting for run /runs/another (pid {os.getpid()}) on cpu since "
    assert wait_until(lambda: printed.getvalue().count(words) >= 3, 30)
    lease.release()
    assert wait_until(lambda: "waiting for another run on cpu\n" in printed.getvalue(), 30)
    journal.append("waiting", case=question.id, phase="device", left=0)
    assert wait_until(lambda: "[running]   default  copy" in printed.getvalue(), 30)
    shown.pytest_sessionfinish()


def estimate(case_ids: list[str], measure: float, workers: int = 1) -> float:
    return TimeLeft(measure).of(case_ids, workers)


def test_the_estimate_grows_with_questions_children_and_measurements() -> None:
    one = estimate(["cpu/torch/default/convolution/x/fwd"], 1.0)
    same_child = estimate([f"cpu/torch/default/convolution/x{n}/fwd" for n in range(2)], 1.0)
    own_child = estimate([f"cpu/torch/{name}/convolution/x/fwd" for name in ("default", "cpu")], 1.0)
    timed = estimate([f"cpu/torch/{name}/throughput/x" for name in ("default", "cpu")], 1.0)
    assert one < same_child < own_child < timed
    several = estimate([f"cpu/torch/{name}/convolution/x/fwd" for name in ("default", "cpu")], 1.0, 2)
    swept = estimate(["cpu/torch/default/memory-sweep/x", "cpu/torch/default/memory-sweep/y"], 1.0)
    once = estimate(["cpu/torch/default/memory-sweep/x"], 1.0)
    taken = estimate(["cpu/torch/default/memory/x", "cpu/torch/default/memory/y"], 1.0)
    assert swept - once > taken - estimate(["cpu/torch/default/memory/x"], 1.0)
    assert one <= several < own_child
    assert timed < estimate([f"cpu/torch/{name}/throughput/x" for name in ("default", "cpu")], 2.0)


def test_what_was_answered_tells_of_the_rest() -> None:
    left = [f"cpu/torch/default/convolution/x{n}/fwd" for n in range(10)]
    time_left = TimeLeft(0.5)
    guessed = time_left.of(left)
    time_left.answered("cpu/torch/default/convolution/y/fwd", 40.0)
    time_left.answered("cpu/torch/default/convolution/z/fwd", 20.0)
    assert time_left.of(left) == 300.0 > guessed
    # A check that was not asked yet is as much slower than the guess.
    assert time_left.of(["cpu/torch/default/training-step/float32"]) == pytest.approx(300 * 2.0)
    assert time_left.of([]) == 0.0


@pytest.mark.parametrize("each", [30.0, 3.0], ids=["slow", "a slow start"])
def test_a_run_that_takes_much_longer_says_so_once(tmp_path: Path, each: float) -> None:
    folder = tmp_path / "out"
    run(folder, "--device", "cpu", *SMALL)
    (folder / NAME).write_text((folder / NAME).read_text("utf-8").splitlines()[0] + "\n", "utf-8")
    printed = io.StringIO()
    progress = Progress(Console(file=printed, width=200), folder)
    cases = [f"cpu/torch/default/convolution/{GOOD}-{n}/fwd" for n in range(40)]
    with (folder / NAME).open("a", encoding="utf-8") as journal:
        write = partial(print, file=journal, flush=True)
        write(json.dumps({"record": "plan", "at": 0.0, "cases": cases}))
        for number, case in enumerate(cases[:5]):
            question = {"setting": "default", "check": "convolution"}
            at = each * number
            write(json.dumps({"record": "intent", "at": at, "case": case, "question": question}))
            write(json.dumps({"record": "outcome", "at": at + each, "outcome": {"id": case}}))
            progress.pytest_collection_finish()
    lines = printed.getvalue().splitlines()
    if each < 4:
        assert len(lines) == 1
        return
    assert re.fullmatch(r"40 questions to this machine; about \d+ s if nothing hangs", lines[0])
    assert re.fullmatch(r"1 of 40 answered in \d+ s; about 20 min more", lines[1])
    assert len(lines) == 2


def test_on_a_gpu_the_estimate_is_a_lower_bound(tmp_path: Path) -> None:
    header = {
        "record": "run", "rocmprobe": "", "started": "", "folder": "", "machine": {}, "simulation": None,
        "interpreter": None,
        "options": {"level": "quick", "settings": "default"}, "settings": {
            "cuda:0": [{"name": "default", "reason": "", "verdict": "native"}]
        },
        "targets": [{"device": "cuda:0", "backend": "miopen"}],
    }  # fmt: skip
    (tmp_path / NAME).write_text(f"{json.dumps(header)}\n", "utf-8")
    printed = io.StringIO()
    progress = Progress(Console(file=printed, width=200), tmp_path)
    plan = {"record": "plan", "at": 0.0, "cases": [f"cuda:0/torch/default/convolution/{GOOD}/fwd"]}
    with (tmp_path / NAME).open("a", encoding="utf-8") as journal:
        journal.write(f"{json.dumps(plan)}\n")
    progress.pytest_collection_finish()
    assert re.match(r"1 questions to this machine; at least \d+ s, more while", printed.getvalue())
