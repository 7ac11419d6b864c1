"""``rocmprobe run --python``: several Python environments in one run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs import Run, cli, environment, journal, rocmprobe, run, wait_until
from stand_in_pythons import HIDDEN, python_with_torch_alone

from rocmprobe.engine.child import Child, fork_server
from rocmprobe.engine.interpreters import interpreters
from rocmprobe.engine.launch import launch_of
from rocmprobe.model.results import JoinedRun, Results
from rocmprobe.model.results_file import read_joined, read_results

PROBLEM = "conv2d-fp32-n1-c4-i8x8-k4-f3x3"
CHEAP = (
    "--device", "cpu", "--settings", "bypass,", "--problem", PROBLEM, "--purpose", "inference",
    "--only", "copy", "--only", "elementwise", "--only", "gemm", "--only", "convolution",
    "--only", "throughput", "--skip", "*/float16", "--skip", "*/bfloat16", "--skip", "*/float64",
)  # fmt: skip

RUNGS = ("--device", "cpu", "--only", "copy", "--only", "elementwise", "--settings", "default")
#: What the loader says where a wheel's ROCm is not there.
MISSING = "libamdhip64.so.5: cannot open shared object file: No such file or directory"


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an environment that has torch alone, and one whose torch cannot be imported."""
    folder = tmp_path_factory.mktemp("pythons")
    python_with_torch_alone(folder / "alone")
    python_with_torch_alone(folder / "broken", f"raise OSError({MISSING!r})")
    return folder


@pytest.fixture(scope="module")
def three(pythons: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the environment that has torch alone, of one whose torch is broken, and of nothing."""
    return run(
        tmp_path_factory.mktemp("run") / "three", *CHEAP, "--python", f"right={pythons / 'alone'}",
        "--python", pythons / "broken", "--python", f"gone={pythons / 'gone'}",
    )  # fmt: skip


@pytest.mark.thorough
def test_a_worker_needs_torch_and_nothing_of_rocmprobes_dependencies(pythons: Path) -> None:
    (alone,) = interpreters([str(pythons / "alone")])
    command = launch_of(alone.python)
    ended = subprocess.run(
        command.command("rocmprobe.worker.device_query"),
        env=environment(command.variables), capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = dict(json.loads(line)[:2] for line in ended.stdout.splitlines() if line)
    assert answers["version"]
    imports = f"import sys; assert not set({HIDDEN!r}) & set(sys.modules), sys.modules"
    for name in (
        "worker.main",
        "worker.torch_driver",
        "checks",
        "worker.server",
        "simulate.libraries",
    ):
        imports = f"import rocmprobe.{name}; {imports}"
    # Below the folder of the launched module: -c of its own would not find the package.
    module = pythons / "imports_all.py"
    module.write_text(imports)
    subprocess.run(
        command.command("imports_all"),
        env=environment({**command.variables, "PYTHONPATH": str(pythons)}), check=True,
    )  # fmt: skip


def member(joined: Run, name: str) -> Results:
    """The results of an environment's own run."""
    return read_results(joined.folder / name / "results.json")


def named(joined: Run) -> JoinedRun:
    found = read_joined(joined.folder / "results.json")
    assert found
    return found


def test_each_environment_is_a_run_of_its_own(three: Run, pythons: Path) -> None:
    assert three.ended.returncode == 1, three.ended.stderr
    found = {each.name: each for each in named(three).members}
    assert list(found) == ["right", "broken", "gone"]
    assert found["right"].python == str(pythons / "alone" / "bin" / "python")
    assert found["broken"].torch == "2.4.0"
    assert "no such file" in found["gone"].unusable
    right, broken = member(three, "right"), member(three, "broken")
    states = {outcome.id: outcome.state for outcome in right.outcomes}
    assert states[f"cpu/torch/bypass/convolution/{PROBLEM}/fwd"] == "pass"
    states = {outcome.id: outcome.state for outcome in broken.outcomes}
    assert states["cpu/torch/default/copy/float32"] == "error"
    assert {trial.start_method for each in (right, broken) for trial in each.trials} == {"fork"}
    assert right.environment
    assert (right.environment.name, right.environment.python) == ("right", found["right"].python)
    for name in ("right", "broken"):
        assert {path.name for path in (three.folder / name).iterdir()} >= {
            "journal.jsonl", "junit.xml", "report.html", "results.json"
        }  # fmt: skip


def test_one_environment_is_chosen_with_its_setting(three: Run) -> None:
    joined = named(three)
    assert joined.chosen == "right"
    assert joined.sentence.startswith("Use the environment right (torch ")
    assert "in the environment broken no setting gives correct results" in joined.cost
    assert "the environment gone cannot be tested" in joined.cost
    right, broken, gone = joined.members
    assert (right.setting, bool(right.seconds)) == ("default", True)
    assert (broken.verdict, broken.setting) == ("none", "")
    assert broken.note == f"import torch: OSError: {MISSING}"
    assert gone.note == "no such file; name an interpreter or a virtual environment"
    assert not joined.partial


def test_what_is_wrong_with_an_environment_is_a_finding_of_its_own_run(three: Run) -> None:
    (found,) = (each for each in member(three, "broken").findings if each.severity == "error")
    assert (found.title, found.cause) == ("torch cannot be imported", "library-path")
    assert any(MISSING in line for line in found.evidence)
    assert not member(three, "right").findings


def _processes_of(environment: Path) -> list[str]:
    """The command lines that name the interpreter of an environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = path.read_bytes()
            if bytes(environment / "bin" / "python") in command and b"rocmprobe.worker" in command:
                found.append(command.decode())
    return found


@pytest.mark.thorough
def test_a_run_that_was_killed_is_finished_in_all_its_environments(pythons: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    # By a path of its own: the process that makes other runs keeps its servers.
    own = tmp_path / "own"
    own.symlink_to(pythons / "alone")
    wanted = ["--python", f"a={own}", "--python", f"b={own}"]
    home = {"HOME": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "rocmprobe", "run", "--out", str(folder), *RUNGS, *wanted],
        env=environment(home),
    )
    try:
        while not any(record["record"] == "outcome" for record in journal(folder / "a")):
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert wait_until(lambda: not _processes_of(own), 20)
    before = [record["outcome"]["id"] for record in journal(folder / "a") if record["record"] == "outcome"]
    (begun,) = (record for record in journal(folder / "a") if record["record"] == "run")
    assert begun["interpreter"]["python"] == "<home>/own/bin/python"
    elsewhere = cli("run", "--resume", folder)
    assert elsewhere.returncode == 2
    assert "the interpreter of 'a' is not found; name it again with --python a=PATH" in elsewhere.stderr
    again = Run(folder, rocmprobe("run", "--resume", folder, "--retry-aborted", "-n", "2", env=home))
    assert not named(again).partial
    for name in ("a", "b"):
        assert {outcome.state for outcome in member(again, name).outcomes} == {"pass"}
    intents = [record["case"] for record in journal(folder / "a") if record["record"] == "intent"]
    assert [intents.count(case) for case in before] == [1] * len(before)


def test_the_terminal_and_the_page_show_environments_side_by_side(three: Run) -> None:
    table = three.ended.stdout.rpartition("environment  ")[2].partition("Cost:")[0]
    assert re.search(r"right \(recommended\)\s+Native\s+default\s+[\d.]+ [µm]?s\s+[\d.]+", table)
    assert re.search(r"broken\s+No safe configuration\s+2\.4\.0", table)
    assert re.search(r"gone\s+Not tested", table)
    assert "broken: import torch: OSError: libamdhip64.so.5: cannot open" in " ".join(table.split())
    page = (three.folder / "report.html").read_text("utf-8")
    rows = re.findall(r"<tr><th scope=\"row\">(right|broken|gone)[^<]*</th>(.*?)</tr>", page, re.DOTALL)
    assert [name for name, _ in rows] == ["right", "broken", "gone"]
    assert "No safe configuration" in rows[1][1]
    assert f"<dt>broken</dt><dd>import torch: OSError: {MISSING}</dd>" in page


@pytest.mark.thorough
def test_exec_runs_a_program_in_the_recommended_environment(three: Run, pythons: Path) -> None:
    program = pythons / "program.py"
    program.write_text("import sys, torch; print(sys.prefix, torch.ones(2).sum().item())")
    profile = ("exec", "--profile", three.folder / "results.json", "--")
    ended = rocmprobe(*profile, "python3", program)
    assert ended.stdout.split() == [str(pythons / "alone"), "2.0"], ended.stderr
    assert "in the environment right" in ended.stderr
    assert "warning" not in ended.stderr
    other = rocmprobe(*profile, sys.executable, "-c", "pass")
    assert (
        f"warning: {sys.executable} runs the program, not the recommended environment right" in other.stderr
    )


def test_env_names_the_interpreter_by_its_path_here(three: Run, pythons: Path, tmp_path: Path) -> None:
    redacted = tmp_path / "results.json"
    right = three.folder / "right" / "results.json"
    redacted.write_text(right.read_text().replace(str(pythons), "<home>"))
    printed = rocmprobe("env", redacted, env={"HOME": str(pythons)}).stderr
    assert f"for the Python environment right: {pythons / 'alone' / 'bin' / 'python'}" in printed


@pytest.mark.thorough
def test_verify_asks_the_recommended_environment_alone(three: Run, tmp_path: Path) -> None:
    again = run(tmp_path / "out", "--verify", three.folder / "results.json")
    assert again.ended.returncode == 0, again.ended.stdout
    assert "default still works" in again.ended.stdout
    assert again.results.environment == member(three, "right").environment


def test_compare_holds_each_environment_against_itself(three: Run) -> None:
    same = cli("compare", three.folder, three.folder, "--json")
    found = json.loads(same.stdout)
    assert same.returncode == 0
    assert {name: each["verdict"] for name, each in found["environments"].items()} == {
        "right": "no change", "broken": "no change"
    }  # fmt: skip


def test_a_report_of_a_joined_run_compares_and_its_other_forms_are_those_of_the_chosen_one(
    three: Run, tmp_path: Path
) -> None:
    def report(source: Path, form: str) -> str:
        ended = cli("report", source, "--format", form, "-o", tmp_path / "report")
        assert ended.returncode == 0, ended.stderr
        return (tmp_path / "report").read_text("utf-8")

    assert report(three.folder, "html") == (three.folder / "report.html").read_text("utf-8")
    assert "| broken | No safe configuration |" in report(three.folder, "md")
    for form in ("json", "junit"):
        assert report(three.folder, form) == report(three.folder / "right", form)


@pytest.mark.thorough
def test_a_single_environment_is_an_ordinary_run(pythons: Path, tmp_path: Path) -> None:
    one = run(tmp_path / "one", *RUNGS, "--python", f"only={pythons / 'alone'}")
    assert one.ended.returncode == 0, one.ended.stderr
    assert one.results.environment
    assert one.results.environment.name == "only"
    assert set(one.states.values()) == {"pass"}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (("nowhere",), "no such file"),
        (("a=/usr/bin/env", "a=/bin/sh"), "two environments are named 'a'"),
        (("a b=/usr/bin/python3",), "'a b' is not a valid name"),
        (("/bin/true",), "no Python that can be used"),
    ],
)
def test_a_path_that_is_no_interpreter_gets_one_line(
    wanted: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    named = [word for path in wanted for word in ("--python", path)]
    ended = cli("run", "--out", tmp_path / "out", *named, cwd=tmp_path)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_environments_do_not_go_with_a_simulated_machine(tmp_path: Path) -> None:
    ended = cli("run", "--simulate", "rdna1-rocm52-conv-dead", "--python", sys.executable, cwd=tmp_path)
    assert ended.returncode == 2
    assert "--simulate" in ended.stderr


@pytest.mark.thorough
def test_a_server_reports_how_its_child_ended_and_is_replaced_after_its_end(
    pythons: Path, tmp_path: Path
) -> None:
    (alone,) = interpreters([str(pythons / "alone")])
    command = launch_of(alone.python)
    for number in (signal.SIGSEGV, signal.SIGABRT):
        child = Child({}, tmp_path, spawn=False, launch=command)
        assert child.start_method == "fork"
        os.kill(child.pid, number)
        assert child.exit(20) == number.name
    child = Child({}, tmp_path, spawn=False, launch=command)
    server = fork_server(command, 60)
    assert server
    server.end()
    assert child.exit(20) == "SIGKILL"
    again = Child({}, tmp_path, spawn=False, launch=command)
    assert again.start_method == "fork"
    assert again.kill() == "killed"
