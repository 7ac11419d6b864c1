"""Which algorithm is taken: by the model, by measurement, or from the plan file."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

START = """
import os, sys, threading, warnings
import torch
import torch.nn.functional as F
from rocmprobe import bypass

bypass.install("cpu")
input, weight = torch.randn(2, 16, 20, 20), torch.randn(16, 16, 3, 3)

def convolve(times):
    for _ in range(times):
        F.conv2d(input, weight, padding=1)

"""


def run(tmp_path, program, **variables):
    """What ``program`` prints, with plan files in ``tmp_path``."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ROCMPROBE_BYPASS_")}
    environ.update({"ROCMPROBE_BYPASS_PLANS": str(tmp_path / "plans"), **variables})
    done = subprocess.run(
        [sys.executable, "-W", "ignore:Failed to initialize NumPy", "-c", START + textwrap.dedent(program)],
        check=False, env=environ, text=True, capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def records(tmp_path):
    files = list((tmp_path / "plans").glob("*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_the_third_call_measures_and_the_next_process_knows(tmp_path):
    program = """
        convolve(2)
        print(len(os.listdir(os.environ["ROCMPROBE_BYPASS_PLANS"])) if os.path.exists(
            os.environ["ROCMPROBE_BYPASS_PLANS"]) else 0)
        convolve(1)
        print(list(bypass.status()["calls"].items())[-1][0])
    """
    before, last = run(tmp_path, program).stdout.split()
    assert before == "0"
    (record,) = records(tmp_path)
    assert record["algorithm"] == last
    assert record["problem"].startswith("fwd float32")
    # A record decides the first call already, also one that no measurement would have made.
    file = next((tmp_path / "plans").glob("*"))
    for name in ("shift", "im2row"):
        file.write_text(json.dumps({**record, "algorithm": name}) + "\n")
        assert run(tmp_path, "convolve(1); print(bypass.status()['calls'])").stdout == f"{{'{name}': 1}}\n"
    assert len(records(tmp_path)) == 1


@pytest.mark.parametrize(
    ("variables", "program"),
    [
        ({"ROCMPROBE_BYPASS_MEASURE": "0"}, "convolve(5)"),
        ({}, "torch.use_deterministic_algorithms(True); convolve(5)"),
        ({"ROCMPROBE_BYPASS_PLANS": "0"}, "convolve(5)"),
        ({"ROCMPROBE_BYPASS_ALGORITHM": "mec"}, "convolve(5)"),
    ],
)
def test_what_keeps_nothing(tmp_path, variables, program):
    run(tmp_path, program, **variables)
    assert not (tmp_path / "plans").exists()
    assert not os.path.exists("0")


def test_deterministic_mode_takes_no_notice_of_what_was_measured(tmp_path):
    run(tmp_path, "convolve(3)")
    file = next((tmp_path / "plans").glob("*"))
    (record,) = records(tmp_path)
    chosen = []
    for name in ("shift", "im2row"):
        file.write_text(json.dumps({**record, "algorithm": name}) + "\n")
        program = "torch.use_deterministic_algorithms(True); convolve(1); print(*bypass.status()['calls'])"
        chosen.append(run(tmp_path, program).stdout)
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\xff not a plan file",
        b"[]\n",
        b'{"version": 0, "device": "x", "torch": "1", "problem": "p", "algorithm": "mec"}\n',
        b'{"version": 1, "dev',
    ],
)
def test_a_file_that_is_damaged_or_of_others_is_warned_of_once(tmp_path, content):
    run(tmp_path, "convolve(3)")
    file = next((tmp_path / "plans").glob("*"))
    own = file.read_bytes()
    file.write_bytes(content)
    done = run(tmp_path, "convolve(3); weight = torch.randn(8, 16, 3, 3); convolve(3)")
    assert done.stderr.count("UserWarning: rocmprobe.bypass") == 1
    assert f"{file} has 1 of 1 lines that are no plans of this device" in done.stderr
    # What can be read of a damaged file is used.
    file.write_bytes(own + content)
    done = run(tmp_path, "convolve(1); print(*bypass.status()['calls'])")
    assert done.stdout.strip() == json.loads(own)["algorithm"]
    assert done.stderr.count("UserWarning: rocmprobe.bypass") == 1


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path):
    (tmp_path / "plans").write_text("a file, no folder")
    done = run(tmp_path, "convolve(4); print(sum(bypass.status()['calls'].values()))")
    assert done.stdout == "4\n"
    assert done.stderr.count("UserWarning: rocmprobe.bypass") == 1


def test_processes_and_threads_write_at_the_same_time(tmp_path):
    program = """
        def own(index):
            weight = torch.randn(index, 16, 3, 3)
            for _ in range(40):
                F.conv2d(input, weight)

        first = 1 + 4 * int(sys.argv[1])
        threads = [threading.Thread(target=own, args=(first + i,)) for i in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """
    environ = {**os.environ, "ROCMPROBE_BYPASS_PLANS": str(tmp_path / "plans")}
    del environ["ROCMPROBE_BYPASS_MEASURE"]
    command = [sys.executable, "-c", START + textwrap.dedent(program)]
    running = [subprocess.Popen([*command, str(index)], env=environ) for index in range(3)]
    assert [process.wait(120) for process in running] == [0, 0, 0]
    problems = {record["problem"] for record in records(tmp_path)}
    # A thread that finds another one measuring goes on by the model, and measures at a later call.
    assert len(problems) >= 9


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "ROCMPROBE_BYPASS_WORKSPACE_MB",
            "much",
            "ROCMPROBE_BYPASS_WORKSPACE_MB=much: set a positive number",
        ),
        ("ROCMPROBE_BYPASS_WORKSPACE_MB", "-1", "ROCMPROBE_BYPASS_WORKSPACE_MB=-1: set a positive number"),
        ("ROCMPROBE_BYPASS_ALGORITHM", "magic", "ROCMPROBE_BYPASS_ALGORITHM=magic: there are auto, fast"),
    ],
)
def test_variables_that_make_no_sense_are_refused(tmp_path, name, value, said):
    program = """
        bypass.uninstall()
        for function in (lambda: bypass.install("cpu"), lambda: bypass.patch(torch.nn.Conv2d(1, 1, 1))):
            try:
                function()
            except ValueError as error:
                print(error)
    """
    program = textwrap.dedent(program)
    start = f"import os; os.environ[{name!r}] = {value!r}\n"
    out = run(tmp_path, start + program).stdout
    assert out.count(said) == 2


def test_variables_decide_what_a_caller_leaves_open(tmp_path):
    program = """
        convolve(1)
        bypass.install("cpu", algorithm="shift")
        convolve(1)
        print(*bypass.status()["calls"])
    """
    variables = {"ROCMPROBE_BYPASS_ALGORITHM": "im2row", "ROCMPROBE_BYPASS_WORKSPACE_MB": "64"}
    assert run(tmp_path, program, **variables).stdout == "im2row shift\n"
