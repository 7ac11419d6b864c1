"""The verdict on the kernels of a machine: kept, read back, and given by a child that may do anything."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rocmprobe.kernels import gate
from rocmprobe.kernels.gate import KernelVerdict

IDENTITY = {
    "native": "gfx1010:xnack-",
    "effective": "gfx1030",
    "runtime": "HIP 6.4.43484",
    "source": "5f3a",
    "dtype": "float16",
}


def test_a_verdict_is_read_back_for_what_it_names_and_for_nothing_else(tmp_path):
    verdict = KernelVerdict("failed", "12 of 40 values differ", log="some lines", kernels=("a", "b"))
    gate.write(tmp_path / "new", IDENTITY, verdict)
    assert gate.read(tmp_path / "new", IDENTITY) == verdict
    for name in IDENTITY:
        other = gate.read(tmp_path / "new", {**IDENTITY, name: "another"})
        assert (other.state, "not tested" in other.refusal()) == ("untried", True)
    assert verdict.refusal() == "12 of 40 values differ"
    assert KernelVerdict("passed").refusal() == ""
    assert [path.name for path in (tmp_path / "new").iterdir() if ".json" not in path.name] == []


def test_without_a_folder_nothing_is_kept(tmp_path):
    gate.write(None, IDENTITY, KernelVerdict("passed"))
    assert gate.read(None, IDENTITY).state == "untried"
    file = tmp_path / "file"
    file.touch()
    gate.write(file, IDENTITY, KernelVerdict("passed"))
    assert gate.read(file, IDENTITY).state == "untried"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b'{"version": 1}', b"\xff", b"[" * 100_000, b'{"version": 9, "identity": {}}'],
)
def test_what_is_no_verdict_is_none(tmp_path, content):
    gate.write(tmp_path, IDENTITY, KernelVerdict("passed"))
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    assert gate.read(tmp_path, IDENTITY).state == "untried"


def test_a_trial_whose_process_is_gone_has_failed(tmp_path):
    gate.write(tmp_path, IDENTITY, KernelVerdict("began", process=os.getpid()))
    assert gate.read(tmp_path, IDENTITY).refusal() == "another process is testing the kernels"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gate.write(tmp_path, IDENTITY, KernelVerdict("began", process=ended.pid))
    verdict = gate.read(tmp_path, IDENTITY)
    assert (verdict.state, "did not finish" in verdict.refusal()) == ("failed", True)


def child(*statements: str) -> list[str]:
    return ["-c", "; ".join(("from rocmprobe.kernels import gate", *statements))]


def test_a_child_prints_its_verdict_last():
    verdict = KernelVerdict("failed", "no kernel")
    command = child("print('a line of a library')", f"print(gate.to_line(gate.{verdict!r}))")
    assert gate.tried_in_child(command) == verdict


def test_a_child_is_not_to_try_again_by_itself():
    command = child(
        "import os", "print(gate.to_line(gate.KernelVerdict('failed', reason=os.environ[gate.VARIABLE])))"
    )
    assert gate.tried_in_child(command).reason == "0"


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("import os; print('last words', flush=True); os.abort()", "ended without a result (signal 6"),
        ("print('last words'); raise SystemExit(3)", "ended without a result (exit code 3"),
        ("print('last words')", "ended without a result (exit code 0"),
        ("print('last words', flush=True); import time; time.sleep(60)", "did not finish in 1 s"),
    ],
)
def test_a_child_that_crashes_hangs_or_says_nothing_has_failed(statement, reason):
    verdict = gate.tried_in_child(["-c", statement], time_limit=1.0 if "sleep" in statement else 30.0)
    assert verdict.state == "failed"
    assert reason in verdict.refusal()
    assert "last words" in verdict.log


def test_the_variable_is_0_or_1_or_unset():
    words = {value: gate.chosen({gate.VARIABLE: value} if value else {}) for value in ("", "0", "1")}
    assert words == {"": "if-passed", "0": "off", "1": "try"}
    with pytest.raises(ValueError, match="ROCMPROBE_BYPASS_KERNELS=yes: set 0 or 1, or leave it unset"):
        gate.chosen({gate.VARIABLE: "yes"})
