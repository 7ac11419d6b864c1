"""``rocmprobe check``: one verdict within its budget, whatever hangs, and nothing left behind."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec.structs
import pytest
import sample
from runs import CHECKOUT, Started, cli, environment, machine_file, named_machine, rocmprobe, wait_until
from stand_in_libraries import python_without_torch

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.check import CHECK, setting_of
from rocmprobe.engine.check_plan import cases_of
from rocmprobe.engine.check_verdict import CheckProgress, Facts, Over, Verdict, exit_code, make_verdict
from rocmprobe.engine.lease import DeviceLease
from rocmprobe.engine.run_state import Running
from rocmprobe.engine.targets import Device
from rocmprobe.model.results import Outcome, Results
from rocmprobe.model.results_file import read_results, write_results

KEYS = {
    "state", "verdict", "setting", "device", "gpu", "native_isa", "effective_isa", "reason", "failed",
    "checked", "not_checked", "seconds", "budget", "results", "simulated", "rocmprobe", "started",
}  # fmt: skip
EXAMPLES = CHECKOUT / "reports" / "examples"
RDNA1 = "rdna1-rocm52-conv-dead"
CONVOLUTION = "cuda:0/default/convolution/conv2d-fp32-n1-c4-i8x8-k4-f3x3/fwd"
#: More than a check may take over its budget, by the machine's load.
OVER = 2.0


@pytest.fixture(autouse=True)
def own_lock_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "locks").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "locks"))


def check(*arguments: object, **process: Any) -> dict[str, Any]:
    """What ``check --json`` answers, with its exit code; of a process of its own, since it forks."""
    ended = rocmprobe("check", "--json", *arguments, **process)
    assert ended.stdout, ended.stderr
    return {**json.loads(ended.stdout), "code": ended.returncode, "stderr": ended.stderr}


def machine(folder: Path, *faults: Mapping[str, Any]) -> Path:
    return machine_file(folder / "machine.toml", *faults)


def left_by(mark: Started) -> list[str]:
    """The temporary folders of the processes with that mark; the one of the locks stays."""
    pids = set(mark.seen)
    return [
        path.name
        for path in Path(tempfile.gettempdir()).glob("rocmprobe-*")
        if len(parts := path.name.split("-")) > 3 and parts[2] in pids
    ]


class Checking(Started):
    """A check in the background; ``seen`` are the ids of all its processes so far."""

    def __init__(self, *arguments: object, **started: Any) -> None:
        super().__init__("check", *arguments, **started)
        self.seen: list[str] = []

    def has_a_worker(self) -> bool:
        found = self.alive()
        self.seen = [*{*self.seen, *map(str, found)}]
        return any(b"rocmprobe.worker" in command_line(pid) for pid in found)


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# What is asked, and what comes of it.


def test_a_healthy_machine_is_ok_in_an_empty_environment(tmp_path: Path) -> None:
    """As Slurm starts a health check: no PATH, no HOME, a folder that takes no file, and a full TMPDIR."""
    ended = subprocess.run(
        [sys.executable, "-m", "rocmprobe", "check", "--json", "--simulate", machine(tmp_path)],
        cwd="/proc", env={"SLURMD_NODENAME": "n1", "PYTHONPATH": str(CHECKOUT), "TMPDIR": "/proc"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer.keys() == KEYS
    assert (answer["state"], answer["reason"], answer["failed"], answer["not_checked"]) == (
        "ok",
        None,
        [],
        [],
    )
    assert (answer["setting"], answer["device"], answer["native_isa"]) == ("default", "cuda:0", "gfx1010")
    assert answer["simulated"] == "machine"
    assert answer["results"] is None
    assert answer["verdict"].startswith("ok: default on gfx1010 (cuda:0) (simulated): 10 checks correct in ")
    asked = [(each["check"], each["direction"]) for each in answer["checked"]]
    assert asked[:4] == [("copy", None), ("elementwise", None), ("gemm", None), ("convolution", "fwd")]
    assert ("convolution", "bwd-weights") in asked
    assert asked[-1] == ("batch-norm", None)
    assert {each["dtype"] for each in answer["checked"]} == {"float32"}
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.thorough
def test_results_say_which_setting_to_check_and_what_need_not_work(tmp_path: Path) -> None:
    """Native convolution fails on this machine, and one setting is recommended for both dtypes."""
    name = "rdna1-rocm52-conv-dead"
    answer = check(EXAMPLES / name, "--simulate", name)
    assert (answer["state"], answer["code"]) == ("ok", 0), answer["verdict"]
    assert answer["setting"] == read_results(EXAMPLES / name).recommended
    assert answer["results"] == str(EXAMPLES / name / "results.json")
    assert {each["dtype"] for each in answer["checked"]} == {"float32", "float16"}
    assert {each["state"] for each in answer["checked"]} <= {"pass", "slow"}


@pytest.mark.thorough
def test_the_results_are_those_of_the_last_complete_run(tmp_path: Path) -> None:
    for name, results in (("latest", sample.rdna1()), ("recommended", sample.healthy_cpu())):
        (tmp_path / "reports" / name).mkdir(parents=True)
        write_results(results, tmp_path / "reports" / name / "results.json")
    answer = check("--budget", "10", "--device", "cpu", cwd=tmp_path)
    assert answer["results"] == "reports/recommended/results.json"


@pytest.mark.thorough
def test_the_first_failure_ends_the_check(tmp_path: Path) -> None:
    fault = {"library": "miopen", "effect": "signal", "directions": ["bwd-data"]}
    answer = check("--simulate", machine(tmp_path, fault))
    assert (answer["state"], answer["reason"], answer["code"]) == ("problem", "crash", 1)
    assert answer["checked"][-1]["state"] == "crash"
    assert answer["failed"] == [answer["checked"][-1]["id"]]
    assert answer["failed"][0].endswith("/bwd-data")
    assert answer["not_checked"][-1].endswith("batch-norm/float32")
    assert "SIGSEGV" in answer["verdict"]


# Where nothing is tried.


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("run", "holder"), [("/runs/one", "rocmprobe run, /runs/one"), (CHECK, "another check")]
)
def test_a_device_that_is_held_is_busy(run: str, holder: str) -> None:
    lease = DeviceLease("cpu", Path(run))
    lease.take()
    answer = check("--device", "cpu")
    assert (answer["state"], answer["reason"], answer["code"]) == ("busy", "busy", 6)
    assert f"pid {os.getpid()} ({holder}) uses cpu" in answer["verdict"]
    assert answer["checked"] == []


def test_no_such_device_is_nothing() -> None:
    ended = cli("check", "--device", "cuda:7")
    assert (ended.returncode, ended.stderr) == (3, "")
    assert ended.stdout.startswith("nothing: --device cuda:7: ")


def test_a_device_of_the_results_that_is_gone_is_a_problem() -> None:
    answer = check(EXAMPLES / "emulated-gfx1010")
    assert (answer["state"], answer["reason"], answer["code"]) == ("problem", "no-device", 1)
    assert "cuda:0, the device of the results, is gone" in answer["verdict"]


def test_a_python_without_torch_is_unknown(tmp_path: Path) -> None:
    python = python_without_torch(tmp_path / "python")
    ended = rocmprobe("check", python=python)
    assert (ended.returncode, ended.stderr) == (6, "")
    assert ended.stdout == "unknown: no torch in this Python; see `rocmprobe install`\n"


def test_a_torch_that_cannot_be_imported_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libamdhip64.so.5: no such file')\n")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.4.0'\ncuda = None\nhip = None\n")
    answer = check("--device", "cpu", env={"PYTHONPATH": str(tmp_path)})
    assert (answer["state"], answer["reason"], answer["code"]) == ("problem", "error", 1)
    line = "problem: error in import of torch, default on cpu: import torch: OSError: libamdhip64.so.5: "
    assert answer["verdict"].startswith(line)


def _no_room() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))


def test_a_full_disk_is_an_answer(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "rocmprobe", "check", "--device", "cpu"],
        # Python would cut the files of its bytecode, too, and no later process could import them.
        env=environment({"PYTHONDONTWRITEBYTECODE": "1"}),
        capture_output=True, text=True, timeout=300, check=False, preexec_fn=_no_room,
    )  # fmt: skip
    assert ended.returncode == 6
    assert ended.stdout.startswith("unknown: no room for temporary files: File too large in ")
    assert ended.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["locks"]


# What breaks in the probe itself.


def test_what_hangs_before_a_worker_is_there_ends_with_the_budget(tmp_path: Path) -> None:
    """A pipe to which nobody writes stands for a file system that does not answer."""
    os.mkfifo(tmp_path / "machine.toml")
    with subprocess.Popen(
        ["sh", "-c", f"exec 9<>{tmp_path}/machine.toml; read line"], stdin=subprocess.PIPE
    ) as held:
        answer = check("--simulate", tmp_path / "machine.toml", "--budget", "3", cwd=tmp_path)
        held.communicate(b"\n")
    assert (answer["state"], answer["reason"], answer["code"]) == ("unknown", "time", 6)
    assert answer["verdict"] == "unknown: time: out of time (budget 3 s) in the start"


def test_a_fault_of_the_probe_is_unknown_with_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['rocmprobe.detect.gpus.users'] = None\n"
    )
    ended = rocmprobe("check", "--device", "cpu", env={"PYTHONPATH": str(tmp_path)})
    assert ended.returncode == 5
    assert ended.stdout.startswith("unknown: ModuleNotFoundError: ")
    assert ended.stdout.count("\n") == 1
    assert ended.stderr.startswith("Traceback (most recent call last):\n")


# What ends a check before its time.


def test_sigterm_gives_a_verdict_at_once(tmp_path: Path) -> None:
    checking = Checking("--simulate", machine(tmp_path), "--budget", "120")
    assert checking.reaches(checking.has_a_worker)
    printed = checking.terminate()
    assert checking.process.returncode == 6
    assert printed.startswith("unknown: time: ended by a signal in ")
    assert wait_until(lambda: not checking.alive(), 10)
    assert left_by(checking) == []


def test_one_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    checking = Checking("--simulate", machine(tmp_path), "--budget", "120")
    assert checking.reaches(checking.has_a_worker)
    # Returns when nobody has its output open any more.
    checking.kill()
    assert wait_until(lambda: not checking.alive(), 10)
    assert left_by(checking) == []


# The questions.

TARGET = Device("cuda:0", "miopen")


def asked(results: Results, purpose: str = "training") -> list[tuple[str, str, str | None]]:
    """Return check, dtype and direction of the cases that run under the recommended setting."""
    assert results.recommendation is not None
    setting = setting_of(results.recommendation.configuration.setting or "", TARGET, None, results)
    found = cases_of(TARGET, setting, purpose, results)
    return [(case.check, case.dtype, case.direction) for case in found]


def test_what_failed_and_was_not_needed_is_not_asked() -> None:
    results = read_results(EXAMPLES / RDNA1 / "results.json")
    assert ("gemm", "float32", None) in asked(results)
    failed = replace(results.outcomes[0], id="cuda:0/default/gemm/float32", check="gemm", state="crash")
    outcomes = (*results.outcomes, failed)
    assert ("gemm", "float32", None) not in asked(replace(results, outcomes=outcomes))


def test_another_dtype_is_asked_where_the_same_setting_is_recommended_for_it() -> None:
    results = read_results(EXAMPLES / RDNA1 / "results.json")
    assert results.recommendation is not None
    setting = results.recommendation.configuration.setting
    for name, dtypes in ((setting, {"float32", "float16"}), ("cpu", {"float32"})):
        per = {"float16/training": {"verdict": "bypass", "setting": name}}
        found = replace(results, recommendation=replace(results.recommendation, per=per))
        assert {dtype for _, dtype, _ in asked(found)} == dtypes


def test_inference_needs_no_gradient() -> None:
    found = asked(read_results(EXAMPLES / RDNA1 / "results.json"), "inference")
    assert {direction for check, _, direction in found if check == "convolution"} == {"fwd"}
    assert ("batch-norm-eval", "float32", None) in found
    assert ("batch-norm", "float32", None) not in found


# The verdict, from what was seen.

FACTS = Facts(setting="default", device="cuda:0", native_isa="gfx1010", gpu="RX 5700 XT")


#: A case that runs, of which the outcome below is.
RUNNING = {CONVOLUTION: Running(Case("cuda:0", "default", "convolution", "float32"), 20.0)}


def answered(state: str = "pass", **changes: Any) -> Outcome:
    outcome = Outcome(
        CONVOLUTION, "cuda:0", "default", "convolution", "conv", state, direction="fwd",
        phase="first-call", activity="idle", evidence=("no answer",),
    )  # fmt: skip
    return replace(outcome, **changes)


def verdict(*checked: Outcome, ended: str = "over", usual: float | None = None, **changes: Any) -> Verdict:
    """The verdict on a case that took 20 seconds, and takes ``usual`` seconds in the results."""
    facts = msgspec.structs.replace(FACTS, usual={CONVOLUTION: usual})
    progress = CheckProgress(
        facts=facts, outcomes={outcome.id: outcome for outcome in checked}, seconds={CONVOLUTION: 20.0},
        last_outcome=40.0, ended=ended, **changes,
    )  # fmt: skip
    return make_verdict(progress, 50.0, "2026-01-01T00:00:00Z")


STATES = {
    "ok": (verdict(answered()), 0),
    "problem": (verdict(answered("wrong")), 1),
    "wedged": (verdict(answered("hang"), unkillable=True), 4),
    "nothing": (verdict(over=Over("nothing", "no-device", ".")), 3),
    "busy": (verdict(over=Over("busy", "busy", ".")), 6),
    "out of time": (verdict(ended="time", running=RUNNING), 6),
    "no torch": (verdict(over=Over("unknown", "no-torch", ".")), 6),
    "own fault": (verdict(answered("probe-error")), 5),
    "died": (verdict(ended="died"), 5),
}


@pytest.mark.parametrize("case", STATES)
def test_the_exit_code_of_each_state(case: str) -> None:
    given, code = STATES[case]
    assert exit_code(given) == code


@pytest.mark.parametrize(
    ("answer", "usual", "moved", "state"),
    [
        (answered("hang"), None, None, "problem"),
        (answered("hang", activity="busy"), None, None, "unknown"),
        (answered("hang", activity="busy"), 3.0, None, "problem"),
        (answered("hang", activity="busy"), 15.0, None, "unknown"),
        (answered("hang", activity="busy", phase="steady"), None, None, "problem"),
        (answered("hang", activity="busy", phase="prepare"), None, None, "unknown"),
        *(
            (answered("hang", activity="busy", check=check), None, None, "unknown")
            for check in ("copy", "elementwise", "gemm", "batch-norm")
        ),
        (answered("hang", activity="busy", check="gemm"), 1.0, None, "problem"),
        (answered("hang", activity="idle", check="gemm"), None, None, "problem"),
        (answered("hang", activity="busy", check="gemm", phase="steady"), None, None, "problem"),
        (answered("hang", activity="compiler-child"), 3.0, None, "unknown"),
        (answered("hang", activity="compiling"), 3.0, None, "unknown"),
        (answered("hang", activity="gpu-busy"), None, None, "problem"),
        (answered("hang", check="copy", phase="start"), None, None, "problem"),
        (answered("hang", check="copy", phase="start"), None, 39.0, "unknown"),
        (answered("hang", check="copy", phase="start"), None, 12.0, "problem"),
        (answered("hang", check="copy", phase="start", activity="busy"), None, None, "unknown"),
    ],
)
def test_silence_is_a_hang_unless_something_is_done_that_may_take_long(
    answer: Outcome, usual: float | None, moved: float | None, state: str
) -> None:
    given = verdict(answer, usual=usual, last_read=moved)
    assert (given.state, given.reason) == (state, "hang" if state == "problem" else "time")


@pytest.mark.parametrize(("state", "cause"), [("crash", "oom-kill"), ("error", "out-of-memory")])
def test_memory_that_others_have_is_no_problem_of_the_machine(state: str, cause: str) -> None:
    given = verdict(answered(state, failure=cause))
    assert (given.state, given.reason, exit_code(given)) == ("unknown", "error", 6)


def test_what_cannot_be_killed_is_a_problem_where_there_was_no_answer() -> None:
    given = verdict(ended="time", running=RUNNING, unkillable=True)
    assert (given.state, given.reason, given.failed) == ("problem", "hang", (CONVOLUTION,))


def test_the_line_is_short_ascii_and_harmless() -> None:
    given = verdict(answered("error", evidence=("\x1b[31mfünf\n##[error]" + "x" * 5000,)))
    assert given.verdict.startswith(
        "problem: error in convolution fwd float32, default on gfx1010 (cuda:0): "
    )
    assert given.verdict.isascii()
    assert given.verdict.isprintable()
    assert "##[" not in given.verdict
    assert len(given.verdict) <= 300


# Every machine.


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "budget", "states", "words"),
    [
        # The worker sleeps before torch is there; on a loaded machine it may not get so far in time.
        pytest.param(
            {"phase": "import"}, 6, ("hang", "time"), " in import of torch, default on gfx1010 (cuda:0)",
            id="in the import",
        ),
        pytest.param(
            {"directions": ["fwd"]}, 20, ("hang",), " in convolution fwd float32, default",
            id="in a convolution",
        ),
        pytest.param({}, 3, ("hang", "error", "time"), "", id="the smallest budget"),
    ],
)  # fmt: skip
def test_a_hang_keeps_to_the_budget(
    tmp_path: Path, fault: dict[str, Any], budget: int, states: tuple[str, ...], words: str
) -> None:
    fault = {"library": "miopen", "effect": "ignore-term", **fault}
    answer = check("--simulate", machine(tmp_path, fault), "--budget", budget, cwd=tmp_path)
    assert answer["state"] in ("problem", "unknown")
    assert answer["reason"] in states
    assert words in answer["verdict"]
    assert answer["seconds"] <= answer["budget"] + OVER


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        "healthy-gfx1100", "rdna1-rocm52-conv-dead", "compile-abort", "search-for-minutes", "winograd-wrong",
    ],
)  # fmt: skip
def test_each_kind_of_simulated_machine_has_a_verdict_within_the_budget(name: str) -> None:
    answer = check("--simulate", named_machine(name), "--budget", "40", cwd=CHECKOUT)
    assert answer["state"] in ("ok", "problem")
    assert answer["seconds"] <= answer["budget"] + OVER
    assert answer["simulated"] == name
